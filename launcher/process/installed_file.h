// Files that are installed with dlaunch, seen from where its binary is.
#pragma once

#include <string>
#include <string_view>

namespace dlaunch {

// The path of the file with that name (with a slash before it) in dlaunch's own folder of
// libraries, or in `build_folder` of the folder in which it was built; "": there is none, as on a
// host that got a copy of dlaunch alone.
std::string find_installed(std::string_view name, std::string_view build_folder);

}  // namespace dlaunch
