// The ring along which payloads travel between sites.
#pragma once

#include <cstdint>
#include <vector>

namespace dlaunch {

// rate[a][b]: bytes per second from a to b; 0: unknown, and no better than the worst. At most
// kMostSites sites. The ring begins with 0 and uses each site once. Among all rings its slowest
// line is the fastest possible, and then the sum of its rates is the largest; among equals it is
// the first in the order of numbers. Exact (dynamic programme over subsets, Held and Karp 1962).
std::vector<std::int32_t> best_site_order(const std::vector<std::vector<std::uint64_t>>& rate);

}  // namespace dlaunch
