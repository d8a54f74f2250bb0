// SpinPolicy: whether a rank that waits for another host should poll before it sleeps. Polling
// saves a wake-up if answers come within microseconds. If each wait lasts as long as a link needs
// for a granule, polling only takes the core from other users, such as the kernel's network code.
// Pure.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace dlaunch {

class SpinPolicy {
 public:
  // A wait is over.
  void waited(Duration length) { average_ += (std::min(length, kMost) - average_) / kMemory; }
  // Whether the next one is probably short.
  bool pays() const { return average_ < kShort; }

 private:
  // About twice the cost of falling asleep and waking up. One long wait, such as for a rank that
  // computed longer, must not outweigh many short ones.
  static constexpr Duration kShort = std::chrono::microseconds(100), kMost = 4 * kShort;
  static constexpr int kMemory = 8;  // waits

  Duration average_{};
};

}  // namespace dlaunch
