// Files that are replaced atomically. A reader sees the old content or the new, also after a crash
// of this process, this host, or the file server.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

// Creates a file with these bytes, with access for us only, for put_in_place().
Result<UniqueFd> write_anew(const std::string& path, std::string_view bytes);

// The file is on disk under its new name when this returns. On failure the file is removed, and the
// old one stays.
Result<void> put_in_place(const UniqueFd& file, const std::string& path, const std::string& name);

// Empty if there is no such file.
Result<std::string> read_whole(const std::string& path);

}  // namespace dlaunch
