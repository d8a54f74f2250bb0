// The scanner: words of a command line in anybody's spelling -> rows of the option table and their
// values. Pure.
//
// `-` and `_` are equal in long names. A long name may have one dash, as mpirun writes it (-np,
// -hostfile). Nothing is ever abbreviated. A value follows as the next word or after '=' (a number
// may be glued to a letter: -n4). Options end at "--" or at the first word that is not one; what
// follows is the program's, whatever it looks like. An option of another launcher takes as many
// words as it does there, and stands for options of ours (foreign_options.h).
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
  std::vector<std::string> notes;     // for -v: what other launchers' options became
  std::vector<std::string> warnings;  // which of two meanings an option has here
  bool by_dashes = false;             // "--" stands before it
};

// An error tells of every option that cannot be taken, a line each.
Result<ScannedLine> scan_line(const std::vector<std::string>& words);

}  // namespace dlaunch
