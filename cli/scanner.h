// The scanner: words of a command line in any launcher's spelling -> rows of the option table and
// their values. Pure.
//
// `-` and `_` are equal in long names. A long name may have one dash, as in mpirun (-np,
// -hostfile). There are no abbreviations. A value follows as the next word or after '=' (a number
// may be glued to a letter: -n4). Options end at "--" or at the first other word; all later words
// are the program's, whatever they look like. An option of another launcher takes as many words as
// it does there, and is translated to options of ours (foreign_options.h).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/option_table.h"

namespace dlaunch {

struct GivenOption {
  const OptionRow* row = nullptr;
  std::string value;    // "" for a switch without "=value"
  std::string spelled;  // as the user wrote its name: "-np"
};

struct ScannedLine {
  std::vector<GivenOption> options;
  std::vector<std::string> program;
  std::vector<std::string> notes;     // for -v: translations of other launchers' options
  std::vector<std::string> warnings;  // which of two meanings an option has here
  bool by_dashes = false;             // "--" precedes the program
};

// An error names every invalid option, a line each.
Result<ScannedLine> scan_line(const std::vector<std::string>& words);

}  // namespace dlaunch
