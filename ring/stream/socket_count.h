// SocketCount: how many sockets a rank uses at once to send to each other rank. It finds the number
// by hill-climbing during the work: it times calls of about the same size (a power of two), and
// changes to twice or half as many sockets as long as that is faster. All ranks begin alike and try
// the same at the same calls. If their clocks make them decide differently, that costs only time,
// because receivers take whatever comes. Pure.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

class SocketCount {
 public:
  // Begins with `first` sockets, and never takes more than `most`; both powers of two.
  SocketCount(std::size_t most, std::size_t first) : most_(most), first_(std::min(first, most)) {}

  // Begins a call that sends `bytes` to each other rank.
  std::size_t begin(std::size_t bytes) {
    current_ = bytes < kLeastBytes || most_ == 1 ? nullptr : &climb_of(bytes);
    return current_ == nullptr ? 1 : current_->trying;
  }
  // Whether end() needs the time of the running call; false if there is no choice.
  bool counts() const { return current_ != nullptr; }
  // The call has succeeded.
  void end(Duration took) {
    if (!counts()) return;
    Climb& climb = *current_;
    if (climb.settled_for > 0) {
      --climb.settled_for;
      return;
    }
    climb.samples.push_back(took);
    if (climb.samples.size() <= kSamples) return;
    // Skip the first sample: it has opened the windows of the sockets.
    const auto middle = climb.samples.begin() + 1 + kSamples / 2;
    std::nth_element(climb.samples.begin() + 1, middle, climb.samples.end());
    const Duration median = *middle;
    climb.samples.clear();
    decide(climb, median);
  }
  // The number of sockets that it would use now.
  std::size_t best(std::size_t bytes) const {
    if (bytes < kLeastBytes) return 1;
    const auto known = climbs_.find(std::bit_width(bytes));
    return known == climbs_.end() ? first_ : known->second.best;
  }

 private:
  struct Climb {
    std::size_t best = 1, trying = 1;
    Duration took{};  // with the best
    bool above_is_slower = false, below_is_slower = false;
    int settled_for = 0;  // calls
    std::vector<Duration> samples{};
  };

  // A fresh connection sends this much before the first answer: less gains nothing.
  static constexpr std::size_t kLeastBytes = 14 << 10;
  static constexpr std::size_t kSamples = 5;
  static constexpr int kKeeps = 2000;

  Climb& climb_of(std::size_t bytes) {
    return climbs_.try_emplace(std::bit_width(bytes), Climb{.best = first_, .trying = first_})
        .first->second;
  }
  // A difference of less than a tenth is not worth a change.
  void decide(Climb& climb, Duration median) const {
    const bool above = climb.trying > climb.best;
    if (climb.trying == climb.best) {
      climb.took = median;
      climb.above_is_slower = climb.below_is_slower = false;
    } else if (median * 10 < climb.took * 9) {
      (above ? climb.below_is_slower : climb.above_is_slower) = true;
      climb.best = climb.trying;
      climb.took = median;
    } else {
      (above ? climb.above_is_slower : climb.below_is_slower) = true;
    }
    if (!climb.above_is_slower && climb.best * 2 <= most_) {
      climb.trying = climb.best * 2;
    } else if (!climb.below_is_slower && climb.best > 1) {
      climb.trying = climb.best / 2;
    } else {
      climb.trying = climb.best;
      climb.settled_for = kKeeps;
    }
  }

  std::size_t most_, first_;
  std::map<int, Climb> climbs_;  // by the number of bits of the size
  Climb* current_ = nullptr;
};

}  // namespace dlaunch
