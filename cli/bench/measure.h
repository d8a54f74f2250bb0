// One rank's part in timing the cases. Everything here is collective.
#pragma once

#include <cstddef>
#include <vector>

#include <dlaunch/ring.h>

#include "cli/bench/bench_case.h"
#include "cli/bench/bench_output.h"
#include "cli/bench/options.h"

namespace bench {

// Throws a Failure with the communicator's words.
void require(dl_result result, dl_comm* comm);

class Bench {
 public:
  Bench(dl_comm* comm, const Options& options, const Plan& plan);
  // The result is the same on all ranks.
  Timing measure(const Case& c, bool in_place);

 private:
  std::size_t checked_run(const Case& c, bool in_place);
  double timed_run(const Case& c, bool in_place);
  std::vector<double> of_slowest(std::vector<double> times);
  Overlap overlap(const Case& c, bool in_place, std::size_t count, double alone_us);
  int iterations(const Case& c, bool in_place);
  Buffers& next_buffers();

  dl_comm* comm_;
  const Options& options_;
  double skew_us_;
  std::vector<Buffers> buffers_;  // more than one: they take turns
  std::size_t turn_ = 0;
};

}  // namespace bench
