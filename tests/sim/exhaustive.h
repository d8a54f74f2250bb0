// All orders in which things may happen to a small job: JobCore alone, linked workers, no time but
// what a deadline brings. States are told apart by what can be seen of the core from outside, and
// by how the last process of each slot ended.
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
  std::size_t states = 5'000'000;  // no more than these
};

struct Explored {
  std::size_t states = 0;
  bool complete = true;
  std::string wrong;               // empty: nothing
  std::vector<std::string> steps;  // that lead to it
};

Explored explore(const JobConfig& job, const Bounds& bounds);

}  // namespace dlaunch::sim
