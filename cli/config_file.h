// Config files: the part of TOML that options need. "key = value" lines; values are "strings" with
// escapes, 'literal strings', numbers, true and false, and arrays of those over one or more lines;
// # starts a comment. Tables ([section]) are refused. Pure.
//
// CLI11 merges the entries (options.cc); its own reader cuts strings at '#' and has no line
// numbers, so this one replaces it behind CLI::Config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

struct ConfigEntry {
  std::string key;
  std::vector<std::string> values;  // one, or an array's
  int line = 0;
};

// Malformed: Errc::protocol, "<name>:<line>: …". A key may appear only once.
Result<std::vector<ConfigEntry>> parse_config(std::string_view text, std::string_view name);

}  // namespace dlaunch
