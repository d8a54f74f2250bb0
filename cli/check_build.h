// --check-build: what this dlaunch can do here, as `horovodrun --check-build` prints it.
#pragma once

#include <string>

namespace dlaunch {

// What is built in, then each library that dlaunch loads only where it is needed, with [X] if it
// is found here.
std::string build_text();

}  // namespace dlaunch
