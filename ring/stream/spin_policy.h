// SpinPolicy: whether a rank that waits for another host should poll before it sleeps. Polling
// saves a wake-up where answers come within microseconds; where each wait lasts as long as a link
// needs for a granule, it only takes the core from whoever else could use it, the kernel's network
// among them. Pure.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace dlaunch {

class SpinPolicy {
 public:
  // A wait is over.
  void waited(Duration length) { average_ += (std::min(length, kMost) - average_) / kMemory; }
  // The next one can be expected to be short.
  bool pays() const { return average_ < kShort; }

 private:
  // About twice what falling asleep and waking up cost. One long wait, such as for a rank that
  // computed longer, must not outweigh many short ones.
  static constexpr Duration kShort = std::chrono::microseconds(100), kMost = 4 * kShort;
  static constexpr int kMemory = 8;  // waits

  Duration average_{};
};

}  // namespace dlaunch
