// Files that are replaced in one piece. Whoever opens one sees the old content
// or the new, also after a crash of this process, this host, or the file server.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

// A file of these bytes, for us alone, for put_in_place().
Result<UniqueFd> write_anew(const std::string& path, std::string_view bytes);

// On disk under its new name when this returns. If it fails the file is removed, and what was there
// stays.
Result<void> put_in_place(const UniqueFd& file, const std::string& path, const std::string& name);

// Nothing where there is no such file.
Result<std::string> read_whole(const std::string& path);

}  // namespace dlaunch
