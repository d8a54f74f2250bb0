// Waiting in shared memory. A rank publishes progress by storing a counter and ringing its bell;
// the others wait for the counter. A waiter polls for some time and then sleeps on the bell's
// futex; if ranks outnumber cores it offers its core to the others before each look. Ringing costs
// a system call only if a rank sleeps.
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
  std::atomic<std::int32_t> core{-1};  // its owner was last here; a hint (see ring/call/spread.h)
};

// Call it after storing the progress.
void ring_bell(Bell& bell);
// Wakes all sleepers in any case; for aborts.
void ring_bell_always(Bell& bell);

class Waiter {
 public:
  // own: the waiting rank's bell. The bells of all ranks lie in the order of their numbers;
  // others_cores reads the cores of all others.
  Waiter(const AbortFlag& abort, int rank, Bell& own, bool spin, Spread::OthersCores others_cores)
      : abort_(abort),
        own_(own),
        spin_(spin),
        spread_(rank),
        others_cores_(std::move(others_cores)) {}

  // Returns true once ready() is true, false if the abort flag was raised or the deadline passed
  // first (the flag tells which). It calls ready() often: make that cheap. stays: no other rank
  // needs this core just now, so the wait does not offer it at once.
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

  // Publishes the core that the caller runs on. Stores only a change, because the others read that
  // line.
  void tell_core() {
    const int core = current_core();
    if (core != own_.core.load(std::memory_order_relaxed))
      own_.core.store(core, std::memory_order_relaxed);
  }
  // Moves to another core, if the caller still runs on `core`.
  void leave(int core) { move_away_from(steady_now(), core, own_, true); }

 private:
  // A sleep costs the sleeper and its waker some 50 us, and makes the sleeper late, so that others
  // sleep, too. So polling may cost as much as some sleeps; a wait of seconds still costs nothing.
  static constexpr Duration kSpin = std::chrono::microseconds(300);
  static constexpr int kTurnsPerLook = 64;  // between looks at the clock and at the other's core
  static constexpr int kTurnsToStay = 100;  // 2 to 4 us, the cost of an offer and the way back

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
      // The other one, or another thread of this rank, may need this very core.
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
