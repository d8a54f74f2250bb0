// What dlaunch says about itself: --help, and the lines of a usage error.
#pragma once

#include <string>

#include "base/result.h"

namespace dlaunch {

// Usage, the most common command lines, then the options by group. At most 100 columns.
std::string help_text();

// "dlaunch: …", for usage errors followed by "Try 'dlaunch --help'". With the last newline.
std::string error_text(const Error& error);

}  // namespace dlaunch
