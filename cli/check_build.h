// --check-build: what this dlaunch supports here, printed as by `horovodrun --check-build`.
#pragma once

#include <string>

namespace dlaunch {

// The built-in features, then each library that dlaunch loads only when it is needed, with [X] if
// found here.
std::string build_text();

}  // namespace dlaunch
