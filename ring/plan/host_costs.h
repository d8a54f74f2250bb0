// The cost of a reduction or of an all_gather between hosts, for each algorithm, in the model of
// Hockney (1994): latencies, messages one after the other at one rank, and bytes over its link.
// Pure.
#pragma once

#include <cstddef>

#include "ring/call/plane.h"
#include "ring/plan/schedule.h"

namespace dlaunch {

// The link speed that plans assume. On a faster link the choice costs at most some extra messages;
// on a slower one other traffic would wait for the bytes.
inline constexpr double kSlowBytesPerSecond = 1e9 / 8;
// The most that a rank takes in from all others in an exchange, through others or not.
inline constexpr std::size_t kMostExchanged = 4 << 20;
// The most bytes that go along a grid: a rank needs memory for up to twice as many.
inline constexpr std::size_t kMostByGrid = 4 << 20;

// What joins two hosts.
struct HostLine {
  double latency = 0;           // seconds, one way
  double bytes_per_second = 0;  // of each rank, in each direction
};
// Seconds of an all_reduce of at least two ranks.
double all_reduce_seconds(Algorithm algorithm, int ranks, double bytes, const HostLine& line);

// The cheapest algorithm for a reduction or an all_gather of at least two ranks; `tuning` must have
// a latency.
Algorithm cheapest_between_hosts(const Shape& shape, int ranks, const Tuning& tuning);

}  // namespace dlaunch
