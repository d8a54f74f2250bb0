#include "ring/sites/site_order.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace dlaunch {
namespace {

using Rates = std::vector<std::vector<std::uint64_t>>;
// Sums of 16 rates must not overflow.
constexpr std::uint64_t kMostRate = std::numeric_limits<std::uint64_t>::max() / 32;

// For each set of sites without 0 that have been visited, and each next site outside of it: the
// best value of a path from that site through the others and back to 0. Built from the end, so that
// the ring is then read from its beginning, in the order of numbers among equals.
class RingTable {
 public:
  RingTable(const Rates& rate, bool sums, std::uint64_t least)
      : rate_(rate),
        sums_(sums),
        least_(least),
        size_(rate.size()),
        best_((std::size_t{1} << size_) * size_) {
    for (std::size_t visited = (std::size_t{1} << size_) - 1; visited > 0; --visited) {
      if ((visited & 1) == 0) continue;
      for (std::size_t at = 0; at < size_; ++at) {
        if ((visited >> at & 1) != 0) best_[index(visited, at)] = best_from(visited, at);
      }
    }
  }

  // Of the whole ring; nothing: no ring has all lines at `least` or above.
  std::optional<std::uint64_t> value() const { return best_[index(1, 0)]; }

  std::vector<std::int32_t> ring() const {
    std::vector<std::int32_t> ring = {0};
    std::size_t visited = 1, at = 0;
    while (ring.size() < size_) {
      for (std::size_t to = 0; to < size_; ++to) {
        if ((visited >> to & 1) != 0 || through(visited, at, to) != best_[index(visited, at)]) {
          continue;
        }
        ring.push_back(static_cast<std::int32_t>(to));
        visited |= std::size_t{1} << to;
        at = to;
        break;
      }
    }
    return ring;
  }

 private:
  std::size_t index(std::size_t visited, std::size_t at) const { return visited * size_ + at; }

  std::optional<std::uint64_t> joined(std::size_t from, std::size_t to,
                                      std::optional<std::uint64_t> rest) const {
    const std::uint64_t line = std::min(rate_[from][to], kMostRate);
    if (!rest || line < least_) return std::nullopt;
    return sums_ ? line + *rest : std::min(line, *rest);
  }
  std::optional<std::uint64_t> through(std::size_t visited, std::size_t at, std::size_t to) const {
    return joined(at, to, best_[index(visited | std::size_t{1} << to, to)]);
  }
  std::optional<std::uint64_t> best_from(std::size_t visited, std::size_t at) const {
    if (visited == (std::size_t{1} << size_) - 1) {
      return joined(at, 0, sums_ ? 0 : std::numeric_limits<std::uint64_t>::max());
    }
    std::optional<std::uint64_t> best;
    for (std::size_t to = 0; to < size_; ++to) {
      if ((visited >> to & 1) == 0) best = std::max(best, through(visited, at, to));
    }
    return best;
  }

  const Rates& rate_;
  const bool sums_;
  const std::uint64_t least_;
  const std::size_t size_;
  std::vector<std::optional<std::uint64_t>> best_;
};

}  // namespace

std::vector<std::int32_t> best_site_order(const Rates& rate) {
  if (rate.size() < 3)
    return rate.size() < 2 ? std::vector<std::int32_t>(rate.size())
                           : std::vector<std::int32_t>{0, 1};
  const auto slowest = RingTable(rate, false, 0).value();
  return RingTable(rate, true, *slowest).ring();
}

}  // namespace dlaunch
