// LineMerger joins equal lines of several ranks into one: eight ranks that say the same are shown
// as "[0-7] the same". Pure.
//
// A line is held back until every rank has said it or has gone past it, so that no rank can join
// it; at most kWindow; and never so long that more than kMaxHeldBytes are held. The order of each
// rank's own lines is kept exactly.
//
// How: the held lines stand in one order (their keys) that agrees with every rank's own. A rank
// joins the first line of the same text behind its own last one. If there is none, its line is new
// and stands right behind its own last one, so that as many lines as possible remain to be joined.
// Only the front of that order is ever released, in the order of arrival as far as the ranks' own
// orders allow.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"

namespace dlaunch {

class LineMerger {
 public:
  static constexpr Duration kWindow = std::chrono::milliseconds(100);
  static constexpr std::size_t kMaxHeldBytes = 8 << 20;

  struct Merged {
    RankSet ranks;
    std::string text;
    TimePoint said;  // by the first of them
  };

  // Adds and removes ranks that are waited for. A rank may speak after it has left (a grandchild of
  // a worker).
  void join(int rank) { present_.insert(rank); }
  void leave(int rank) { present_.erase(rank); }

  // Takes one line; take() returns the lines to show now. Time must not run backwards.
  void add(TimePoint now, int rank, std::string_view line);
  // Lines that no rank can join, or whose time is over, in order.
  std::vector<Merged> take(TimePoint now);
  // All held lines, at the end.
  std::vector<Merged> take_all();
  // When to call take() if nothing is added; nullopt: nothing is held.
  std::optional<TimePoint> deadline() const;

 private:
  // By place, then by arrival. Lines at the end take a new place, lines in between share one.
  struct Key {
    std::int64_t place;
    std::uint64_t arrival;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Held {
    Merged line;
    Key key;
    std::size_t blocked_by = 0;  // used while being let go: ranks with an earlier line
  };
  using HeldPtr = std::unique_ptr<Held>;

  static std::size_t cost(const Held& held);
  Held* find_equal(const std::optional<Key>& after, std::string_view line) const;
  Key key_behind(const std::optional<Key>& after) const;
  std::optional<Key> last_to_let_go(TimePoint now) const;
  std::vector<Merged> let_go_until(Key last);

  RankSet present_;
  std::map<Key, HeldPtr> held_;
  std::map<std::pair<std::string_view, Key>, Held*> by_text_;  // views into held lines
  std::map<std::uint64_t, Held*> by_arrival_;
  std::map<int, std::deque<Held*>> said_by_;  // each rank's held lines, in its order
  std::uint64_t arrivals_ = 0;
  std::size_t held_bytes_ = 0;
};

}  // namespace dlaunch
