// What to say about a flag or key that dlaunch does not have.
#pragma once

#include <string>
#include <string_view>

namespace dlaunch {

// The name nearest to `name`, of ours or of another launcher's options that are not refused, if it
// is near (base/nearest.h). "" if none is.
std::string nearest_option(std::string_view name);

// The end of an "unknown option" sentence, from "; ": the nearest name that we take. "" if there is
// nothing to say.
std::string advice_for(std::string_view name);

}  // namespace dlaunch
