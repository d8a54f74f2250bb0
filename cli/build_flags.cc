#include "cli/build_flags.h"

#include <filesystem>
#include <regex>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/installed_folders.h"

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

struct Library {
  std::string_view name, header;
  std::vector<std::string_view> linked;
};

const std::vector<Library>& known_libraries() {
  static const std::vector<Library> all = {{"dlring", "ring.h", {"dlring"}},
                                           {"dlelastic", "elastic.h", {"dlelastic", "dlring"}}};
  return all;
}

// Every loader and every linker searches such a folder.
bool is_searched(const std::string& folder) {
  static const std::regex kSearched("(/usr)?/lib(32|64)?(/[^/]*-linux-[^/]*)?");
  return std::regex_match(folder, kSearched);
}

std::string escaped(const std::string& path) {
  std::string text;
  for (const char c : path) {
    if (std::string_view(" \t\"'\\$`();&|<>*?").find(c) != std::string_view::npos) text += '\\';
    text += c;
  }
  return text;
}

Error missing(const fs::path& file, const std::string& binary) {
  return {.code = Errc::not_found,
          .what = fmt::format("there is no {}, which belongs to {}: 'meson install' installs both",
                              file.string(), binary)};
}

}  // namespace

Result<std::string> build_flags(const Options& options, const std::string& binary) {
  const std::string wanted = options.program.empty() ? "dlring" : options.program.front();
  const Library* library = nullptr;
  for (const Library& known : known_libraries()) {
    if (known.name == wanted) library = &known;
  }
  if (library == nullptr || options.program.size() > 1) {
    return usage_error(
        fmt::format("{} takes the name of one library, dlring or dlelastic, not '{}'",
                    options.cflags ? "--cflags" : "--libs", fmt::join(options.program, " ")));
  }
  const fs::path bin = fs::path(binary).parent_path();
  const fs::path include = (bin / DLAUNCH_INCLUDE_FROM_BIN).lexically_normal();
  const fs::path lib = (bin / DLAUNCH_LIB_FROM_BIN).lexically_normal();
  const fs::path header = include / "dlaunch" / library->header;
  const fs::path linked = lib / fmt::format("lib{}.so", library->name);
  std::error_code none;
  std::string flags;
  if (options.cflags) {
    if (!fs::exists(header, none)) return missing(header, binary);
    if (include != "/usr/include") flags += " -I" + escaped(include);
  }
  if (options.libs) {
    if (!fs::exists(linked, none)) return missing(linked, binary);
    const std::string folder = escaped(lib);
    if (!is_searched(lib)) flags += fmt::format(" -L{0} -Wl,-rpath,{0}", folder);
    for (const auto name : library->linked) flags += fmt::format(" -l{}", name);
  }
  return flags.empty() ? flags : flags.substr(1);
}

Result<std::string> own_build_flags(const Options& options) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return errno_error("/proc/self/exe", error.value());
  return build_flags(options, self);
}

}  // namespace dlaunch
