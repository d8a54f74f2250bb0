// One rank's part in timing the cases. Everything here is collective.
#pragma once

#include <cstddef>

#include <dlaunch/ring.h>

#include "cli/bench/bench_case.h"
#include "cli/bench/bench_output.h"
#include "cli/bench/options.h"

namespace bench {

// Throws a Failure with the communicator's words.
void require(dl_result result, dl_comm* comm);

class Bench {
 public:
  Bench(dl_comm* comm, const Options& options, std::size_t max_bytes);
  // The result is the same on all ranks.
  Timing measure(const Case& c, bool in_place);

 private:
  std::size_t checked_run(const Case& c, bool in_place);
  double timed_run(const Case& c, bool in_place);
  int iterations(const Case& c, bool in_place);

  dl_comm* comm_;
  const Options& options_;
  Buffers buffers_;
};

}  // namespace bench
