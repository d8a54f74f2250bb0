// Files that are installed with dlaunch, seen from where its binary is.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

// The path of the file with that name (with a slash before it) in dlaunch's own folder of
// libraries, or in `build_folder` of the folder in which it was built. "": there is no such file,
// as on a host that got a copy of dlaunch alone, or strangers may write to it. Users other than
// root, the effective user and the owner of dlaunch's binary are strangers.
std::string find_installed(std::string_view name, std::string_view build_folder);

// Whether nobody but these owners can change which file is at that path and what it contains. The
// path is absolute and has no symbolic links. root's group and the user's own may write, too.
bool only_owners_may_write(const std::string& path, const std::vector<uid_t>& owners);

}  // namespace dlaunch
