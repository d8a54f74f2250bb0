// What a reduction costs between hosts by each way that takes more than one latency, in the model
// of Hockney (1994): latencies, messages one after the other at one rank, and bytes over its link.
// Pure.
#pragma once

#include <cstddef>

#include "ring/call/plane.h"
#include "ring/plan/schedule.h"

namespace dlaunch {

// The link of a rank that plans are made for. On faster ones what is chosen is at most some
// messages slower than another way, on slower ones it would be others' bytes that wait.
inline constexpr double kSlowBytesPerSecond = 1e9 / 8;
// The most that a rank takes in of all others in an exchange, through others or not.
inline constexpr std::size_t kMostExchanged = 4 << 20;

// The cheapest way of `tuning`, which has a latency, for an all_reduce or a reduce of two ranks or
// more.
Way cheapest_between_hosts(const Shape& shape, int ranks, const Tuning& tuning);

}  // namespace dlaunch
