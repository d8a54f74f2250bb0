// Suggestions for an unknown flag or key.
#pragma once

#include <string>
#include <string_view>

namespace dlaunch {

// The nearest name, of ours or of another launcher's options that are not refused, if it is near
// (base/nearest.h); else "".
std::string nearest_option(std::string_view name);

// The end of an "unknown option" sentence, from "; ": the nearest name that we accept; "": none.
std::string advice_for(std::string_view name);

}  // namespace dlaunch
