#include "launcher/process/installed_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/installed_folders.h"

namespace dlaunch {
namespace {

bool others_may_write(const struct stat& file) {
  const bool strange_group = file.st_gid != 0 && file.st_gid != ::getegid();
  return (file.st_mode & S_IWOTH) != 0 || ((file.st_mode & S_IWGRP) != 0 && strange_group);
}

// In a sticky folder only the owner of an entry can replace it.
bool protects_entries(const struct stat& file) {
  return S_ISDIR(file.st_mode) && (file.st_mode & S_ISVTX) != 0;
}

}  // namespace

bool only_owners_may_write(const std::string& path, const std::vector<uid_t>& owners) {
  std::filesystem::path reached;
  for (const auto& part : std::filesystem::path(path)) {
    reached /= part;
    struct stat file;
    if (::lstat(reached.c_str(), &file) != 0 || S_ISLNK(file.st_mode)) return false;
    if (std::ranges::find(owners, file.st_uid) == owners.end()) return false;
    if (others_may_write(file) && !protects_entries(file)) return false;
  }
  return true;
}

std::string find_installed(std::string_view name, std::string_view build_folder) {
  std::error_code error;
  const auto binary = std::filesystem::read_symlink("/proc/self/exe", error);
  struct stat own;
  if (error || ::stat("/proc/self/exe", &own) != 0) return "";
  const std::filesystem::path bin = binary.parent_path();
  for (const auto& folder : {bin / DLAUNCH_LIB_FROM_BIN / "dlaunch", bin / ".." / build_folder}) {
    const auto file =
        std::filesystem::canonical(folder.lexically_normal().string() + std::string(name), error);
    if (error || ::access(file.c_str(), R_OK) != 0) continue;
    if (only_owners_may_write(file, {0, ::geteuid(), own.st_uid})) return file;
  }
  return "";
}

}  // namespace dlaunch
