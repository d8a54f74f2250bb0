// Waiting in shared memory. A rank publishes progress by storing a counter and ringing its bell;
// the others wait for the counter. With a core for every rank a waiter spins for some microseconds
// and then sleeps on the bell's futex; with fewer cores than ranks it sleeps at once, because
// whoever it waits for needs the core. Ringing costs a system call only while somebody sleeps.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "ring/abort_flag.h"

namespace dlaunch {

// One per rank, in the control segment.
struct alignas(64) Bell {
  std::atomic<std::uint32_t> rung{0};  // the futex word
  std::atomic<std::uint32_t> sleepers{0};
};

// Called after the progress has been stored.
void ring_bell(Bell& bell);
// Wakes all sleepers whatever happened; for aborts.
void ring_bell_always(Bell& bell);

class Waiter {
 public:
  Waiter(const AbortFlag& abort, bool spin) : abort_(abort), spin_(spin) {}

  // Returns true once ready() is true, false if the abort flag was raised or the deadline passed
  // first (look at the flag to tell). ready() is called often and must be cheap.
  template <class Ready>
  bool wait(Bell& bell, TimePoint deadline, Ready ready) const {
    if (ready()) return true;
    if (spin_) {
      for (int turn = 0; turn < kSpinTurns; ++turn) {
        pause();
        if (ready()) return true;
      }
    }
    while (true) {
      bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
      const auto seen = bell.rung.load(std::memory_order_seq_cst);
      const bool done = ready();
      const bool over = !done && (abort_.raised() || steady_now() >= deadline);
      if (!done && !over) sleep(bell, seen, deadline);
      bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      if (done || ready()) return true;
      if (over) return false;
    }
  }

 private:
  // About 20 us of pauses: longer than a hand-over between running ranks takes, much shorter than
  // what a sleeping one costs.
  static constexpr int kSpinTurns = 1000;

  static void pause();
  static void sleep(Bell& bell, std::uint32_t seen, TimePoint deadline);

  const AbortFlag& abort_;
  bool spin_;
};

}  // namespace dlaunch
