// What a reduction costs between hosts by each way that takes more than one latency, in the model
// of Hockney (1994): latencies, messages one after the other at one rank, and bytes over its link.
// Pure.
#pragma once

#include "base/clock.h"
#include "ring/call/plane.h"
#include "ring/plan/schedule.h"

namespace dlaunch {

// The cheapest of `tuning` at this latency (half a round trip) for an all_reduce or a reduce of two
// ranks or more, each with a link of 1 Gbit/s: on faster ones that way is at most some messages
// slower than another one, on slower ones it would be others' bytes that wait.
Way cheapest_between_hosts(const Shape& shape, int ranks, const Tuning& tuning, Duration latency);

}  // namespace dlaunch
