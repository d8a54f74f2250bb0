// dlaunch's own help: --help, and the lines of a usage error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/option_table.h"

namespace dlaunch {

// Usage, the most common command lines, the options that most jobs need, and pointers to the rest.
// At most 100 columns.
std::string help_text();
// Usage, then all options by group.
std::string help_all_text();
// The options of a group, a line or more each.
std::string group_text(Group group);
// One option, with its other names.
std::string option_text(const OptionRow& row);

// Wraps `text` from that column on, to at most 100 columns.
std::string wrapped(std::string_view text, std::size_t column);

// "dlaunch: …", for usage errors, then "Try 'dlaunch --help'". With the last newline.
std::string error_text(const Error& error);

}  // namespace dlaunch
