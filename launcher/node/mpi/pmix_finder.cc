#include "launcher/node/mpi/pmix_finder.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "base/small_file.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/node/mpi/pmix_library.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostRead = std::size_t{16} << 20;

std::string read_at(int fd, std::size_t at, std::size_t size) {
  std::string bytes(std::min(size, kMostRead), '\0');
  const ssize_t n = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}

template <class T>
T value_in(const std::string& bytes, std::size_t at) {
  T value{};
  if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// "": no such section.
std::string constants_of(int fd) {
  const auto header = value_in<Elf64_Ehdr>(read_at(fd, 0, sizeof(Elf64_Ehdr)), 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    return "";
  }
  const std::size_t size = sizeof(Elf64_Shdr);
  const auto sections = read_at(fd, header.e_shoff, header.e_shnum * size);
  const auto names = value_in<Elf64_Shdr>(sections, header.e_shstrndx * size);
  const auto text = read_at(fd, names.sh_offset, names.sh_size);
  for (std::size_t at = 0; at < sections.size(); at += size) {
    const auto section = value_in<Elf64_Shdr>(sections, at);
    if (section.sh_name < text.size() && text.c_str() + section.sh_name == std::string(".rodata")) {
      return read_at(fd, section.sh_offset, section.sh_size);
    }
  }
  return "";
}

// Where the loader looks: its cache has all of the system's folders, if there is a cache.
std::string path_to(const std::string& name) {
  if (name.find('/') != name.npos) return name;
  const char* const chosen = std::getenv("LD_LIBRARY_PATH");
  for (const auto folder : split_words(chosen != nullptr ? chosen : "", ':')) {
    const auto path = std::string(folder) + "/" + name;
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  const auto cached = path_in_loader_cache(text_of("/etc/ld.so.cache"), name);
  if (!cached.empty()) return cached;
  for (const char* folder : {"/lib64/", "/usr/lib64/", "/lib/", "/usr/lib/"}) {
    if (::access((folder + name).c_str(), R_OK) == 0) return folder + name;
  }
  return "";
}

}  // namespace

std::optional<PmixVersion> find_pmix() {
  const std::string path = path_to(pmix_library_name());
  if (path.empty()) return {};
  auto version = pmix_version_of_file(path);
  if (version.major == 0) {
    const auto library = PmixLibrary::load();
    if (library) version = library->version;
  }
  if (version.major < kOldestPmix) return {};
  return version;
}

PmixVersion pmix_version_of_file(const std::string& path) {
  constexpr std::string_view kBefore = "PMIx ";
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const std::string constants = file ? constants_of(file.get()) : "";
  for (auto at = constants.find(kBefore); at != constants.npos; at = constants.find(kBefore, at)) {
    at += kBefore.size();
    if (std::isdigit(static_cast<unsigned char>(constants[at])) != 0) {
      return pmix_version_in(constants.c_str() + at);
    }
  }
  return {};
}

// The cache's strings stand one after the other, each with its terminator.
std::string path_in_loader_cache(std::string_view cache, const std::string& name) {
  const auto at = cache.find('/' + name + '\0');
  if (at == cache.npos) return "";
  const auto before = cache.rfind('\0', at);
  const auto start = before == cache.npos ? 0 : before + 1;
  return std::string(cache.substr(start, at + 1 + name.size() - start));
}

}  // namespace dlaunch
