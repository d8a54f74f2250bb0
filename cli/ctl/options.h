// The command line of dlaunchctl.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "launcher/lead/control/control_request.h"

namespace dlaunch::ctl {

// Ends dlaunchctl early, with one line and the exit code.
struct Failure {
  int exit_code;
  std::string what;
  bool lasts = false;  // waiting does not help
};

struct Options {
  std::optional<ControlRequest> request;  // none: list, or wait
  std::string job;                        // its id; "": the only running job
  std::string leader;       // of a job of another machine, as parse_leader(); "": here
  std::string secret_file;  // of that job
  bool tls = false;         // that job encrypts its connections
  bool json = false;
  bool once = false;                     // top: do not repeat
  bool wait = false;                     // wait for its end, in place of a request
  std::optional<Duration> timeout = {};  // wait: for no longer
  bool follow = false;                   // events, tail: also later ones
  int lines = 10;                        // tail: so many of the last ones
  double interval_s = 1;                 // between two looks
  std::string say;                       // the text of --help or --version, to print instead
};

// `words` without the program's name. Throws a Failure.
Options read_options(const std::vector<std::string>& words);

}  // namespace dlaunch::ctl
