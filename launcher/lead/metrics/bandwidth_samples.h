// BandwidthSamples: how fast a job's collectives were, sampled over its time: the lines of
// bandwidth.jsonl in the run folder. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/flight_tally.h"

namespace dlaunch {

class BandwidthSamples {
 public:
  using Tallies = std::map<std::pair<int, int>, TallySums>;  // by kind and class of sizes

  // What the tallies have more than at the last sample, of a job of so many ranks: one line with
  // its newline. "": nothing.
  std::string sample(TimePoint now, int ranks, const Tallies& tallies);

 private:
  struct Sums {
    std::uint64_t calls = 0, bytes = 0, ns = 0;
  };
  std::map<std::pair<int, int>, Sums> told_;
};

}  // namespace dlaunch
