// --cflags and --libs: the compiler flags for programs that use the libraries installed with
// dlaunch. The folders follow from dlaunch's own place, so that an installation may be anywhere,
// and may be moved.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/options.h"

namespace dlaunch {

// The flags that `options` ask for, for the library that options.program names (dlring if it names
// none); `binary` is the path of dlaunch. Blanks in paths are escaped, as in pkg-config.
// Errors: usage (no such library), not_found (header or library are not where they are installed).
Result<std::string> build_flags(const Options& options, const std::string& binary);

// The same for the running dlaunch.
Result<std::string> own_build_flags(const Options& options);

}  // namespace dlaunch
