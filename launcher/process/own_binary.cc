#include "launcher/process/own_binary.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

namespace dlaunch {
namespace {

constexpr const char* kOwnBinary = "/proc/self/exe";
constexpr std::size_t kSearched = 4 << 10;

template <class T>
std::optional<T> value_at(std::string_view bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::size_t padded(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// Searches the notes there.
std::string_view find_in_notes(std::string_view start, std::size_t at, std::size_t size) {
  if (at > start.size() || size > start.size() - at) return {};
  const std::string_view notes = start.substr(0, at + size);
  while (const auto note = value_at<Elf64_Nhdr>(notes, at)) {
    const std::size_t name = at + sizeof *note;
    const std::size_t id = name + padded(note->n_namesz), end = id + note->n_descsz;
    if (end > notes.size()) return {};
    const bool is_gnu = notes.substr(name, note->n_namesz) == std::string_view("GNU\0", 4);
    if (note->n_type == NT_GNU_BUILD_ID && is_gnu && note->n_descsz >= 16) {
      return notes.substr(id, note->n_descsz);
    }
    at = id + padded(note->n_descsz);
  }
  return {};
}

}  // namespace

bool is_own_binary(const std::string& path) {
  struct stat own {
  }, there{};
  return ::stat(kOwnBinary, &own) == 0 && ::stat(path.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

std::string_view find_build_id(std::string_view start) {
  const auto header = value_at<Elf64_Ehdr>(start, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_phoff > start.size()) return {};
  for (std::size_t i = 0; i < header->e_phnum; ++i) {
    const auto part = value_at<Elf64_Phdr>(start, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!part) return {};
    if (part->p_type != PT_NOTE) continue;
    const auto id = find_in_notes(start, part->p_offset, part->p_filesz);
    if (!id.empty()) return id;
  }
  return {};
}

Result<OwnBinary> OwnBinary::open() {
  OwnBinary own;
  char path[4096];
  const ssize_t length = ::readlink(kOwnBinary, path, sizeof path);
  if (length <= 0) return errno_error("find our own binary", errno);
  own.path_.assign(path, static_cast<std::size_t>(length));
  own.file_.reset(::open(kOwnBinary, O_RDONLY | O_CLOEXEC));
  struct stat st {};
  if (!own.file_ || ::fstat(own.file_.get(), &st) != 0) {
    return errno_error("read our own binary", errno);
  }
  own.size_ = static_cast<std::size_t>(st.st_size);
  auto start = own.read(std::min(own.size_, kSearched));
  if (!start) return start.error();
  const std::string_view id = find_build_id(*start);
  if (id.empty()) return own;
  own.build_id_ = id;
  own.build_id_at_ = static_cast<std::size_t>(id.data() - start->data());
  return own;
}

Result<std::string> OwnBinary::read(std::size_t size) const {
  std::string bytes(size, '\0');
  for (std::size_t got = 0; got < size;) {
    const ssize_t n = ::pread(file_.get(), bytes.data() + got, size - got, static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return errno_error("read our own binary", n < 0 ? errno : EIO);
    got += static_cast<std::size_t>(n);
  }
  return bytes;
}

}  // namespace dlaunch
