// An exception that a process tells of in its stderr.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

struct Traceback {
  TimePoint begun{};                // its first line was read then; of a chain, the chain's first
  std::vector<std::string> lines;   // its last ones, to the exception; empty: no end was found
  std::vector<std::string> behind;  // a few more: the message or notes may go on there
  std::string error = {};           // the line that names the exception; "": not found
  // Python prints a chain where an exception was raised while another one was handled (in `except`
  // or `finally`), or because of it (`raise … from`). `lines` are of its last exception, these of
  // its first, with the message; empty: there is no chain.
  std::vector<std::string> first = {};
  std::string first_error = {};
  std::uint32_t between = 0;  // exceptions of the chain that are neither its first nor its last
};

}  // namespace dlaunch
