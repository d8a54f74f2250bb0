// LineMerger joins equal lines of several ranks into one: eight ranks that say the same are shown
// as
// "[0-7] the same". A line is held back until every rank has said it, at most kWindow. The order of
// each rank's own lines is kept: a rank joins a waiting line only if it stands behind all that the
// rank has said before. A new line stands beside other ranks' lines of the same place in their
// streams, not at the end, so that what comes after it can still be joined. Pure.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"

namespace dlaunch {

class LineMerger {
 public:
  static constexpr Duration kWindow = std::chrono::milliseconds(100);
  static constexpr std::size_t kMaxHeldBytes = 4 << 20;

  struct Merged {
    RankSet ranks;
    std::string text;
  };

  void join(int rank) { present_.insert(rank); }
  void leave(int rank) { present_.erase(rank); }

  // Takes one line; what may be shown now comes back from take().
  void add(TimePoint now, int rank, std::string_view line);
  // Lines that are complete or whose time is over, in order.
  std::vector<Merged> take(TimePoint now);
  // All that is held, at the end.
  std::vector<Merged> take_all();
  std::optional<TimePoint> deadline() const;

 private:
  struct Held {
    Merged line;
    TimePoint since;
    std::uint64_t place;  // in the stream of the rank that said it first: its how-many-eth line
  };
  struct Stream {
    std::uint64_t said = 0;       // lines
    std::uint64_t next_free = 0;  // the first line number that may still be joined
  };
  Merged pop();

  RankSet present_;
  std::deque<Held> held_;
  std::uint64_t popped_ = 0;  // held_[i] is line number popped_ + i
  std::map<int, Stream> streams_;
  std::size_t held_bytes_ = 0;
};

}  // namespace dlaunch
