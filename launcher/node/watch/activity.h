// Activity: whether a worker without libdlring and without heartbeats does anything, as seen from
// outside. It is active when it writes output, or when the processes of its tree together use more
// CPU time than those that wait: threads of Gloo, NCCL and JAX that look after something now and
// then use less than a hundredth of a CPU. Pure.
#pragma once

#include <optional>

#include "base/clock.h"

namespace dlaunch {

class Activity {
 public:
  struct Sample {
    Duration cpu{};                 // of all processes of its tree so far
    std::optional<TimePoint> said;  // its last output
  };
  // Returns when it was last active; at first, now.
  TimePoint look(TimePoint now, const Sample& sample);

 private:
  TimePoint active_{}, since_{};
  std::optional<Duration> cpu_;  // at since_
};

}  // namespace dlaunch
