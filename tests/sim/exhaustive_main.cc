// Explores some small jobs completely. usage: exhaustive

#include <cstdio>

#include <fmt/format.h>

#include "tests/sim/exhaustive.h"

namespace {

using namespace dlaunch;

struct Small {
  int size, min_size, max_size, spares, restarts;
  RestartScope scope;
  sim::Bounds bounds;
};

constexpr Small kJobs[] = {
    {1, 1, 2, 0, 1, RestartScope::automatic, {.faults = 2, .resizes = 2}},
    {2, 2, 2, 0, 2, RestartScope::automatic, {.faults = 2, .resizes = 0}},
    {2, 1, 2, 0, 0, RestartScope::automatic, {.faults = 2, .resizes = 1}},
    {2, 1, 3, 0, 1, RestartScope::automatic, {.faults = 1, .resizes = 1}},
    {2, 2, 2, 1, 2, RestartScope::automatic, {.faults = 2, .resizes = 0}},
    {2, 2, 2, 0, 1, RestartScope::job, {.faults = 2, .resizes = 0}},
    {2, 2, 2, 0, 1, RestartScope::worker, {.faults = 2, .resizes = 0}},
    {3, 3, 3, 0, 2, RestartScope::automatic, {.faults = 2, .resizes = 0}},
    {3, 2, 3, 0, 0, RestartScope::automatic, {.faults = 2, .resizes = 1}},
};

bool explored(const Small& small) {
  JobConfig job{.size = small.size,
                .min_size = small.min_size,
                .max_size = small.max_size,
                .spares = small.spares,
                .scope = small.scope};
  job.restarts.limit.restarts = small.restarts;
  const auto found = sim::explore(job, small.bounds);
  fmt::print("{} workers ({} to {}), {} spares, {} restarts, {} faults, {} resizes: {} states{}\n",
             small.size, small.min_size, small.max_size, small.spares, small.restarts,
             small.bounds.faults, small.bounds.resizes, found.states,
             found.complete ? "" : ", not all");
  std::fflush(stdout);
  if (found.wrong.empty()) return true;
  for (const auto& step : found.steps) fmt::print("  {}\n", step);
  fmt::print("{}\n", found.wrong);
  return false;
}

}  // namespace

int main() {
  bool good = true;
  for (const Small& small : kJobs) good &= explored(small);
  return good ? 0 : 1;
}
