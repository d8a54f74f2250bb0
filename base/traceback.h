// An exception that a process tells of in its stderr.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

struct Traceback {
  TimePoint begun{};               // it was read then
  std::vector<std::string> lines;  // its last ones, and a few behind it; empty: no end was found
};

}  // namespace dlaunch
