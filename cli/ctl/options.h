// The command line of dlaunchctl.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/control/control_request.h"

namespace dlaunch::ctl {

// What ends dlaunchctl before it is done: one line and the exit code.
struct Failure {
  int exit_code;
  std::string what;
};

struct Options {
  std::optional<ControlRequest> request;  // none: list
  std::string job;                        // its id; "": the only one that runs
  bool json = false;
  bool once = false;      // top: not again and again
  double interval_s = 1;  // between its looks
  std::string say;        // the text of --help or --version, to be printed in place of all else
};

// `words` without the program's name. Throws a Failure.
Options read_options(const std::vector<std::string>& words);

}  // namespace dlaunch::ctl
