// Small text files that the user names: hostfiles and config files.
#pragma once

#include <string>

#include "base/result.h"

namespace dlaunch {

// The contents, at most 16 MiB. Errc::not_found with the system's reason if it cannot be read.
Result<std::string> read_file(const std::string& path);

}  // namespace dlaunch
