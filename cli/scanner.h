// The scanner: words of a command line in anybody's spelling -> rows of the option table and their
// values. Pure.
//
// `-` and `_` are equal in long names. A long name may have one dash, as mpirun writes it (-np,
// -hostfile). Nothing is ever abbreviated. A value follows as the next word or after '=' (a number
// may be glued to a letter: -n4). Options end at "--" or at the first word that is not one; what
// follows is the program's, whatever it looks like.
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
};

Result<ScannedLine> scan_line(const std::vector<std::string>& words);

}  // namespace dlaunch
