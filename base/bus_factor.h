// From the rate of a collective to its bus bandwidth, as nccl-tests' PERFORMANCE.md defines it.
#pragma once

#include <string_view>

#include "base/ring_names.h"

namespace dlaunch {

// Whether a call's count is the part of one rank. collective: one of kCollectiveNames.
constexpr bool counts_parts(std::string_view collective) {
  return collective == "reduce_scatter" || collective == "all_gather" || collective == "gather" ||
         collective == "scatter" || collective == "all_to_all";
}

// busbw / algbw; algbw is the rate of the bytes of all parts together.
constexpr double bus_factor(std::string_view collective, int ranks) {
  const double n = ranks;
  if (collective == "all_reduce" || is_composed_name(collective)) return 2 * (n - 1) / n;
  return counts_parts(collective) ? (n - 1) / n : 1;
}

// The most that a bus bandwidth can be between hosts that each carry `line` bytes a second both
// ways and have equally many ranks: what ranks of one host share does not cross the line. 0: not
// known, for calls that may not share.
constexpr double bus_limit(std::string_view collective, double line, int ranks, int hosts) {
  if (is_composed_name(collective)) return 0;
  const double crossing = bus_factor(collective, hosts) / bus_factor(collective, ranks);
  const double senders = collective == "all_to_all" ? static_cast<double>(ranks) / hosts : 1;
  return line / (crossing * senders);
}

}  // namespace dlaunch
