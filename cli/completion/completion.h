// Completions of dlaunch's command line for shells, generated at build time from the option table:
// options, their values, then the program's own completion.
#pragma once

#include <string>
#include <vector>

#include "cli/option_table.h"

namespace dlaunch {

// How a value is completed: "FILE", "DIR", "HOST", literal words with blanks between them, or ""
// for values that no shell can know.
std::string kind_of(const OptionRow& row);

// All spellings of an option, with their dashes: --nproc, -n, --np, -np …
std::vector<std::string> spellings(const OptionRow& row);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace dlaunch
