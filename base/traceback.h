// An exception that a process reports on its stderr.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

struct Traceback {
  TimePoint begun{};                // when its first line was read; of a chain, the chain's first
  std::vector<std::string> lines;   // the last lines, up to the exception; empty: no end was found
  std::vector<std::string> behind;  // a few more: the message or notes may go on there
  std::string error = {};           // the line that names the exception; "": not found
  // Python prints a chain if an exception was raised while another one was handled (in `except` or
  // `finally`), or because of it (`raise … from`). `lines` belong to its last exception, `first` to
  // its first one, with the message; empty: there is no chain.
  std::vector<std::string> first = {};
  std::string first_error = {};
  std::uint32_t between = 0;  // exceptions in the chain between its first and its last
};

}  // namespace dlaunch
