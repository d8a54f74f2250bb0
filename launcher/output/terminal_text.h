// How text lies on a terminal: what can be seen of it, and how many columns it takes. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dlaunch {

// The size of the control sequence ("\x1b[…m" and its kin) that `text` begins with; 1: it begins
// with none; nullopt: it is not complete.
std::optional<std::size_t> control_sequence(std::string_view text);

// Nothing that a terminal would show: spaces and control sequences such as "erase the line".
bool shows_nothing(std::string_view text);

// How many columns the character takes: 0, 1 or 2.
int columns_of(char32_t character);
// The same of what fit_columns returns.
int columns_of(std::string_view text);

// One line that takes at most so many columns: wide characters are not cut in two, and combining
// ones stay with theirs. Colours are kept, and reset at the end; whatever else would move the
// cursor or change the terminal is left out. A byte that is not UTF-8 becomes "?".
std::string fit_columns(std::string_view text, int columns);

}  // namespace dlaunch
