// From the flight records of all ranks of one host, whose clocks are one, to what the straggler
// detector is fed with: how late each rank enters its collectives, and how long it is in them.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/flight.h"
#include "elastic/straggler_detector.h"

namespace dlaunch {

class StepDigest {
 public:
  void reset() { done_ = 0; }
  // ranks: what each rank, 0 to n - 1, has recorded. The mean over the collectives that all have
  // done since the last time; nullopt where those are fewer than two.
  std::optional<StepTimes> add(const std::map<int, std::vector<FlightSpan>>& ranks);

 private:
  std::uint64_t done_ = 0;  // the last collective that was looked at
};

}  // namespace dlaunch
