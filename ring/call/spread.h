// Spread: gets ranks that wait for each other off one core. The scheduler wakes a rank where its
// waker runs, and two ranks that take turns on one core look to it like one: it may leave them
// there for ever, with other cores idle, and each hand-over then costs a sleep. A rank that finds
// whom it waits for on its own core moves itself to another one: of the two the one of the higher
// number, or both would move, to the same one, again and again. Where ranks outnumber cores, one
// that finds more than a core's share of them on its own does.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

// The core the calling thread runs on; -1 unknown. A few nanoseconds.
int current_core();

// Lets another thread have this one's core, if any wants it: where ranks outnumber cores, the one
// that is waited for gets it, for a fraction of what a sleep and a wake-up cost.
void offer_core();

// What a rank does with its core while it waits for all others, where ranks outnumber cores: keeps
// it for a moment, if those that were last seen on it have come and whoever has not is elsewhere;
// offers it to those that have not; or leaves it, if as many ranks of lower number as are a core's
// share are there already. core_of(r), has_come(r): of rank r; has_come is asked of few.
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

// Where rank `rank`, which runs on `own`, has the fewest neighbours: one of the `allowed` cores on
// which the fewest of `others` were last seen (-1: nobody knows where). Of several each rank
// prefers another one, for not all to meet there that look at the same time. -1 if it would have as
// many neighbours there as it has now. Pure.
int emptier_core(int rank, int own, std::span<const int> others, std::span<const int> allowed);

// One per waiting thread.
class Spread {
 public:
  explicit Spread(int rank) : rank_(rank) {}

  // The cores on which the other ranks were last seen; asked for when a move is due.
  using OthersCores = std::function<std::vector<int>()>;
  // Who is waited for, `whom` (any address that is only its), was last seen on `core`. True if this
  // thread has moved because of it, to an emptier one. goes_first: of the two it is this one's
  // turn; it moves at once, where otherwise it leaves the other one some time to do so (which
  // cannot, if it never waits). Not more often than is worth its cost: where moving does not help
  // (other work holds the cores), ever more seldom.
  bool move_away_from(TimePoint now, int core, const void* whom, bool goes_first,
                      const OthersCores& others);
  // Whether to, where this thread runs on `own` now; it counts as moved if so. Pure.
  bool should_move(TimePoint now, int own, int core, const void* whom, bool goes_first);

  // How long it leaves the other one its turn; a look so long ago says nothing of now.
  static constexpr Duration kOthersTurn = std::chrono::milliseconds(2);
  static constexpr Duration kOldLook = std::chrono::milliseconds(20);

 private:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(1);
  static constexpr Duration kLongestPause = std::chrono::seconds(1);

  const int rank_;
  const void* with_ = nullptr;  // who was found on this core, at each look since shared_since_
  TimePoint shared_since_{}, looked_at_{};
  TimePoint moved_at_{};
  Duration pause_ = kFirstPause;
};

}  // namespace dlaunch
