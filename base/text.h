// Text: makes foreign text fit for a terminal and a log, and splits and changes words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

// Control characters (C0, DEL, C1) and bytes that are not UTF-8 become "\xNN"; all else stays, so
// that escaping twice changes nothing more. The result is one line that cannot move the cursor.
// Every text from a peer goes through it before a log or an Error.
std::string escaped(std::string_view text);

// The length of the well-formed UTF-8 character at the front; 0 if there is none. Not for "".
std::size_t character_size(std::string_view text);

// The last place at or before `at` that cuts no UTF-8 character in two; `at` if the text there is
// not UTF-8. `at` must be inside the text.
std::size_t cut_before(std::string_view text, std::size_t at);

// The words between separators, without empty ones.
std::vector<std::string_view> split_words(std::string_view text, char separator);
// The same between blanks of a line.
inline constexpr std::string_view kBlanks = " \t\r\v\f";
std::vector<std::string_view> split_words(std::string_view line);

// A to Z become a to z.
std::string lower_case(std::string_view text);

// One word quoted for a shell; plain words stay as they are.
std::string shell_quoted(std::string_view word);

}  // namespace dlaunch
