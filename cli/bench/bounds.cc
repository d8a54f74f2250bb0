#include "cli/bench/bounds.h"

#include <algorithm>

namespace bench {
namespace {

constexpr double kGbsUs = 1e3;  // 1 GB/s in bytes per microsecond

// Bytes of one rank, averaged over the ranks.
struct Traffic {
  double loads = 0, stores = 0;
};
struct Work {
  Traffic buffers;      // inputs and outputs: all of the absolute bound
  Traffic all;          // including the traffic through shared memory
  double passed = 0;    // from one rank to another
  bool update = false;  // in place: stores go to where the loads came from
};

std::optional<Work> work(const Case& c, bool in_place, double n) {
  const auto s = static_cast<double>(c.bytes);
  const double others = (n - 1) / n * s;
  switch (c.kind) {
    case Kind::all_reduce:
      return Work{{s, s}, {(3 * n - 2) / n * s, 2 * s}, 2 * others, true};
    case Kind::reduce_scatter:
      return Work{{s, s / n}, {(2 * n - 1) / n * s, s}, others, true};
    case Kind::all_gather: {
      const double output = in_place ? others : s;
      return Work{{s / n, output}, {s, output + s / n}, others};
    }
    case Kind::broadcast:
      return Work{{s / n, others}, {s, s}, others};
    default:
      return std::nullopt;
  }
}

double time_us(const Traffic& traffic, const Rates& rates) {
  const double both = std::min(traffic.loads, traffic.stores);
  return (both / rates.copy + (traffic.loads - both) / rates.read +
          (traffic.stores - both) / rates.write) /
         kGbsUs;
}

// An update in place moves its cache line once instead of twice.
Rates updating(Rates rates) {
  rates.copy = std::max(rates.copy, rates.update);
  return rates;
}

// The largest measured set that is not larger, so that the bound stays a bound.
const Rates& rates_for(const Limits& limits, std::size_t bytes) {
  const Level* best = &limits.levels.front();
  for (const auto& level : limits.levels) {
    if (level.bytes <= bytes) best = &level;
  }
  return best->together;
}

}  // namespace

bool has_bounds(Kind kind) { return work({kind}, false, 2).has_value(); }

std::size_t working_set(const Case& c, bool in_place, int ranks, int buffer_pairs) {
  const auto& kind = info(c.kind);
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t smaller = kind.in_parts || kind.out_parts ? c.bytes / n : c.bytes;
  const bool two = kind.out_of_place && !in_place;
  return (two ? c.bytes + smaller : c.bytes) * static_cast<std::size_t>(buffer_pairs);
}

std::optional<Bounds> bounds(const Limits& limits, const Case& c, bool in_place, int ranks,
                             int buffer_pairs) {
  const auto n = static_cast<double>(ranks);
  const auto bytes = work(c, in_place, n);
  if (!bytes) return std::nullopt;
  const double share = n / std::min(ranks, limits.cores);  // ranks a core works for
  const auto& message = ranks <= limits.cores ? limits.handoff_us : limits.switch_us;
  const double latency = message ? *message : 0;
  const Rates& core = limits.levels.front().together;
  const Rates& staging = rates_for(limits, kStagingSet);
  const Rates& memory = rates_for(limits, working_set(c, in_place, ranks, buffer_pairs));
  const double buffers =
      time_us(bytes->buffers, in_place && bytes->update ? updating(memory) : memory);
  const double m = std::min(ranks, limits.cores);
  const double crossing = n > 1 ? bytes->passed * (m - 1) / m * n / (n - 1) : 0;
  const double passing = limits.pass_gbs ? crossing / *limits.pass_gbs / kGbsUs : 0;
  return Bounds{latency + share * std::max(time_us(bytes->buffers, core), buffers),
                latency + share * std::max({time_us(bytes->all, staging), buffers, passing})};
}

}  // namespace bench
