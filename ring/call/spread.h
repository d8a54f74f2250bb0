// Spread: gets ranks that wait for each other off one core. The scheduler wakes a rank on its
// waker's core, and two ranks that take turns on one core look to it like one: it may leave them
// there for ever while other cores idle, and each hand-over then costs a sleep. A rank that finds
// the rank it waits for on its own core moves to another core. Only the one of the higher number
// moves; otherwise both would move to the same core, again and again. If ranks outnumber cores, a
// rank moves when more than a core's share of them are on its core.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

// The core that the calling thread runs on; -1: unknown. Takes a few nanoseconds.
int current_core();

// Offers this thread's core to any other thread. If ranks outnumber cores, the awaited rank gets
// it, for a fraction of the cost of a sleep and a wake-up.
void offer_core();

// What a rank does with its core while it waits for all others, if ranks outnumber cores. keep: for
// a moment, if the ranks last seen on this core have come and the missing ones are elsewhere.
// offer: to the missing ranks on this core. leave: if ranks of lower number already fill a core's
// share here. core_of(r), has_come(r): of rank r; the function calls has_come for few ranks.
enum class Core { keep, offer, leave };
template <class CoreOf, class HasCome>
Core while_waiting(int own, int ranks, int share, CoreOf core_of, HasCome has_come) {
  int lower = 0;
  bool wanted = false;
  for (int r = 0; r < ranks; ++r) {
    if (r == own || core_of(r) != core_of(own)) continue;
    if (r < own) ++lower;
    wanted = wanted || !has_come(r);
  }
  if (lower >= share) return Core::leave;
  return wanted ? Core::offer : Core::keep;
}

// The core with the fewest neighbours for rank `rank`, which runs on `own`: one of the `allowed`
// cores on which the fewest of `others` were last seen (-1: unknown). Among equals each rank
// prefers another core, so that ranks that look at the same time do not all meet there. -1 if that
// core has as many neighbours as the present one. Pure.
int emptier_core(int rank, int own, std::span<const int> others, std::span<const int> allowed);

// One per waiting thread.
class Spread {
 public:
  explicit Spread(int rank) : rank_(rank) {}

  // The cores on which the other ranks were last seen; called when a move is due.
  using OthersCores = std::function<std::vector<int>()>;
  // The awaited rank, `whom` (any address that identifies it), was last seen on `core`. Returns
  // true if this thread has therefore moved to an emptier core. goes_first: of the two it is this
  // thread's turn, and it moves at once; otherwise it first gives the other one some time to move
  // (which that one cannot do if it never waits). Moves only as often as is worth the cost: ever
  // more rarely if moving does not help (other work holds the cores).
  bool move_away_from(TimePoint now, int core, const void* whom, bool goes_first,
                      const OthersCores& others);
  // Whether to move, if this thread runs on `own` now; counts a true result as a move. Pure.
  bool should_move(TimePoint now, int own, int core, const void* whom, bool goes_first);

  // How long a thread leaves the other one its turn; older looks count for nothing.
  static constexpr Duration kOthersTurn = std::chrono::milliseconds(2);
  static constexpr Duration kOldLook = std::chrono::milliseconds(20);

 private:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(1);
  static constexpr Duration kLongestPause = std::chrono::seconds(1);

  const int rank_;
  const void* with_ = nullptr;  // the rank found on this core at each look since shared_since_
  TimePoint shared_since_{}, looked_at_{};
  TimePoint moved_at_{};
  Duration pause_ = kFirstPause;
};

}  // namespace dlaunch
