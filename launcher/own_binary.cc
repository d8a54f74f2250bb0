#include "launcher/own_binary.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/secret.h"

namespace dlaunch {
namespace {

constexpr const char* kOwnBinary = "/proc/self/exe";
constexpr std::size_t kSearched = 64 << 10;

template <class T>
std::optional<T> value_at(std::string_view bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::size_t padded(std::size_t size) { return (size + 3) & ~std::size_t{3}; }

// Of the build ID among the notes there.
std::size_t end_in_notes(std::string_view start, std::size_t at, std::size_t size) {
  if (at > start.size() || size > start.size() - at) return 0;
  const std::string_view notes = start.substr(0, at + size);
  while (const auto note = value_at<Elf64_Nhdr>(notes, at)) {
    const std::size_t name = at + sizeof *note;
    const std::size_t id = name + padded(note->n_namesz), end = id + note->n_descsz;
    if (end > notes.size()) return 0;
    const bool is_gnu = notes.substr(name, note->n_namesz) == std::string_view("GNU", 4);
    if (note->n_type == NT_GNU_BUILD_ID && is_gnu && note->n_descsz >= 16) return end;
    at = id + padded(note->n_descsz);
  }
  return 0;
}

}  // namespace

std::size_t end_of_build_id(std::string_view start) {
  const auto header = value_at<Elf64_Ehdr>(start, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return 0;
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_phoff > start.size()) return 0;
  for (std::size_t i = 0; i < header->e_phnum; ++i) {
    const auto part = value_at<Elf64_Phdr>(start, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!part) return 0;
    if (part->p_type != PT_NOTE) continue;
    if (const auto end = end_in_notes(start, part->p_offset, part->p_filesz)) return end;
  }
  return 0;
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
  own.head_ = end_of_build_id(*start);
  if (own.head_ == 0) {
    start = own.read();
    if (!start) return start.error();
    own.head_ = own.size_;
  }
  own.head_hash_ = sha256_hex(std::string_view(*start).substr(0, own.head_));
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
