// Waiting in shared memory. A rank publishes progress by storing a counter and ringing its bell;
// the others wait for the counter. A waiter polls for some time and then sleeps on the bell's
// futex; with fewer cores than ranks it offers its core to the others before each look. Ringing
// costs a system call only while somebody sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "ring/call/abort_flag.h"
#include "ring/call/spread.h"

namespace dlaunch {

// One per rank, in the control segment.
struct alignas(64) Bell {
  std::atomic<std::uint32_t> rung{0};  // the futex word
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::int32_t> core{-1};  // where its owner last was; a hint (see ring/call/spread.h)
};

// Called after the progress has been stored.
void ring_bell(Bell& bell);
// Wakes all sleepers whatever happened; for aborts.
void ring_bell_always(Bell& bell);

class Waiter {
 public:
  // own: the waiting rank's. The bells of all ranks lie in the order of their numbers; others_cores
  // reads those of all others.
  Waiter(const AbortFlag& abort, int rank, Bell& own, bool spin, Spread::OthersCores others_cores)
      : abort_(abort),
        own_(own),
        spin_(spin),
        spread_(rank),
        others_cores_(std::move(others_cores)) {}

  // Returns true once ready() is true, false if the abort flag was raised or the deadline passed
  // first (look at the flag to tell). ready() is called often and must be cheap.
  // stays: nobody else needs this core just now, so it is not offered at once.
  template <class Ready>
  bool wait(Bell& bell, TimePoint deadline, Ready ready, bool stays = false) {
    if (ready() || (stays && stay(ready))) return true;
    if (spin_ ? spin(bell, ready) : yield(ready)) return true;
    while (true) {
      bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
      const auto seen = bell.rung.load(std::memory_order_seq_cst);
      const bool done = ready();
      const bool over = !done && (abort_.raised() || steady_now() >= deadline);
      if (!done && !over) {
        sleep(bell, seen, deadline);
        tell_core();  // it woke up where its waker runs
      }
      bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      if (done || ready()) return true;
      if (over) return false;
    }
  }

  // Tells the others the core that the caller runs on. A store only when it has changed: they read
  // that line.
  void tell_core() {
    const int core = current_core();
    if (core != own_.core.load(std::memory_order_relaxed))
      own_.core.store(core, std::memory_order_relaxed);
  }
  // Looks for another core than `core`, if the caller still runs there.
  void leave(int core) { move_away_from(steady_now(), core, own_, true); }

 private:
  // Sleeping costs the sleeper and its waker some 50 us, and a rank that slept makes others late:
  // they sleep, too. So a wait is worth some of those; one of seconds still costs nothing.
  static constexpr Duration kSpin = std::chrono::microseconds(300);
  static constexpr int kTurnsPerLook = 64;  // at the clock, and at the other's core
  static constexpr int kTurnsToStay = 100;  // 2 to 4 us, what offering the core and back costs

  bool move_away_from(TimePoint now, int core, const Bell& whose, bool goes_first) {
    if (!spread_.move_away_from(now, core, &whose, goes_first, others_cores_)) return false;
    tell_core();
    return true;
  }
  template <class Ready>
  bool spin(const Bell& bell, Ready ready) {
    TimePoint until{};
    while (true) {
      for (int turn = 0; turn < kTurnsPerLook; ++turn) {
        pause();
        if (ready()) return true;
      }
      const TimePoint now = steady_now();
      if (until == TimePoint{}) until = now + kSpin;
      if (now >= until) return false;
      // The other one, or a thread of this rank's own, may want this very core.
      const int core = bell.core.load(std::memory_order_relaxed);
      if (!move_away_from(now, core, bell, &bell < &own_)) offer_core();
    }
  }
  template <class Ready>
  static bool stay(Ready ready) {
    for (int turn = 0; turn < kTurnsToStay; ++turn) {
      pause();
      if (ready()) return true;
    }
    return false;
  }
  template <class Ready>
  static bool yield(Ready ready) {
    const TimePoint until = steady_now() + kSpin;
    do {
      offer_core();
      if (ready()) return true;
    } while (steady_now() < until);
    return false;
  }
  static void pause();
  static void sleep(Bell& bell, std::uint32_t seen, TimePoint deadline);

  const AbortFlag& abort_;
  Bell& own_;
  bool spin_;
  Spread spread_;
  const Spread::OthersCores others_cores_;
};

}  // namespace dlaunch
