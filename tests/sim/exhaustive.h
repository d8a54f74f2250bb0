// Explores all orders of the events of a small job: JobCore alone, with linked workers, and no time
// except at deadlines. Two states are equal if the core looks the same from outside and the last
// process of each slot ended in the same way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elastic/job_core.h"

namespace dlaunch::sim {

struct Bounds {
  int faults = 2;
  int resizes = 1;
  int clocks = 2;
  std::size_t states = 5'000'000;  // a limit
};

struct Explored {
  std::size_t states = 0;
  bool complete = true;
  std::string wrong;               // empty: no rule was broken
  std::vector<std::string> steps;  // that lead to it
};

Explored explore(const JobConfig& job, const Bounds& bounds);

}  // namespace dlaunch::sim
