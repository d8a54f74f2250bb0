// Text: what others wrote made fit for a terminal and a log, and words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

// Control characters (C0, DEL, C1) and bytes that are not UTF-8 become "\xNN"; all else stays, so
// that escaping twice changes nothing more. The result is one line that cannot move the cursor.
// Everything a peer has sent goes through it before it is logged or put into an Error.
std::string escaped(std::string_view text);

// The length of the well-formed UTF-8 character at the front; 0 if there is none. Not of "".
std::size_t character_size(std::string_view text);

// The last place not behind `at` where no UTF-8 character is cut in two; `at` where that is no
// UTF-8. There is a byte at `at`.
std::size_t cut_before(std::string_view text, std::size_t at);

// The words between separators, without empty ones.
std::vector<std::string_view> split_words(std::string_view text, char separator);

// One word as a shell would take it back; plain words stay as they are.
std::string shell_quoted(std::string_view word);

}  // namespace dlaunch
