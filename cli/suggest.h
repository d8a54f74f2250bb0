// What to say about a flag or key that dlaunch does not have.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dlaunch {

// The number of letters to insert, delete, replace or swap with a neighbour to make one word of the
// other (Damerau-Levenshtein, optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The option name or alias nearest to `name`, if it is near: at most a third of its letters differ.
// "" if none is.
std::string nearest_option(std::string_view name);

// The end of an "unknown option" sentence, from "; ": what another launcher's flag amounts to here,
// or the nearest name we have. "" if there is nothing to say.
std::string advice_for(std::string_view name);

}  // namespace dlaunch
