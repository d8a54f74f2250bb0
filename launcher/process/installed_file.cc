#include "launcher/process/installed_file.h"

#include <unistd.h>

#include <filesystem>

#include "base/installed_folders.h"

namespace dlaunch {

std::string find_installed(std::string_view name, std::string_view build_folder) {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return "";
  const std::filesystem::path bin =
      std::filesystem::path(std::string(path, static_cast<std::size_t>(length))).parent_path();
  for (const auto& folder : {bin / DLAUNCH_LIB_FROM_BIN / "dlaunch", bin / ".." / build_folder}) {
    const std::string file = folder.lexically_normal().string() + std::string(name);
    if (::access(file.c_str(), R_OK) == 0) return file;
  }
  return "";
}

}  // namespace dlaunch
