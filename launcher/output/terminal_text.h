// Text on a terminal: its visible part, and how many columns it takes. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dlaunch {

// The size of the control sequence ("\x1b[…m" and the like) at the start of `text`; 1: there is
// none; nullopt: it is not complete.
std::optional<std::size_t> control_sequence(std::string_view text);

// A terminal would show nothing of it: spaces and control sequences such as "erase the line".
bool shows_nothing(std::string_view text);

// How many columns the character takes: 0, 1 or 2.
int columns_of(char32_t character);
// The columns of a text that fit_columns returned.
int columns_of(std::string_view text);

// One line that takes at most so many columns: it does not cut wide characters in two, and keeps
// combining ones with theirs. It keeps colours, and resets them at the end; it leaves out all else
// that would move the cursor or change the terminal. A byte that is not UTF-8 becomes "?".
std::string fit_columns(std::string_view text, int columns);

}  // namespace dlaunch
