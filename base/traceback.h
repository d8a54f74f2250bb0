// An exception that a process tells of in its stderr.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

struct Traceback {
  TimePoint begun{};                // it was read then
  std::vector<std::string> lines;   // its last ones, to the exception; empty: no end was found
  std::vector<std::string> behind;  // a few more: the message may go on there
};

}  // namespace dlaunch
