// From the flight records of all ranks of one host, whose clocks are one, to what the straggler
// detector is fed with: how late each rank enters its collectives, how long it is in them, and what
// came over each socket in which time. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/flight.h"
#include "elastic/straggler_detector.h"

namespace dlaunch {

class StepDigest {
 public:
  struct Record {  // of a rank
    std::vector<FlightSpan> spans;
    std::vector<FlightReceived> received;
  };
  void reset() { *this = StepDigest(); }
  // ranks: what each rank, 0 to n - 1, has recorded. The mean over the collectives that all have
  // done since the last time; nullopt where those are fewer than two. Links over which nothing came
  // meanwhile are left out.
  std::optional<StepTimes> add(const std::map<int, Record>& ranks);

 private:
  struct Look {  // at a link
    FlightReceived received;
    std::uint64_t done = 0;  // the last collective then
  };
  std::vector<LinkTimes> links(const std::map<int, Record>& ranks);

  std::uint64_t done_ = 0;                     // the last collective that was looked at
  std::map<std::pair<int, int>, Look> looks_;  // by sender and receiver
};

}  // namespace dlaunch
