// The least time a collective could take on this machine, by a model over measured limits.
//
// A rank's buffers are private or not. If all cores may touch all of them at once, each input is
// loaded once and each output stored once: the absolute bound, which no method beats. If they are
// private, a rank must copy what others need into shared memory and copy its result out of it: the
// bound for this API. For S bytes (Case::bytes) and n ranks, as bytes per rank:
//
//                    absolute             private buffers, in all
//                    loads    stores      loads          stores         passed
//   all_reduce       S        S           (3n-2)/n S     2 S            2 (n-1)/n S
//   reduce_scatter   S        S/n         (2n-1)/n S     S              (n-1)/n S
//   all_gather       S/n      S *         S              S + S/n *      (n-1)/n S
//   broadcast        S/n      (n-1)/n S   S              S              (n-1)/n S
//                    * less S/n in place, where a rank's own part is there already
//
// all_reduce with private buffers, as an example: a rank owns one of n slices. It stages the other
// n-1 (loads and stores (n-1)/n S), reduces its own from n inputs (loads S), stores the result for
// itself and for the others (2/n S), and copies out the others' results ((n-1)/n S of each). Data
// that others have staged or reduced passes from their caches to this core's.
//
// The work of n ranks is spread over m = min(n, cores) cores, each as fast as measured with so
// many at work. For the absolute bound all bytes pass the core at the rates of the smallest
// working set. Staged bytes come from the second cache at best, because no core has another one's
// first cache, hence at the rates of 256 KiB. Of passed bytes only the share (m-1)/m * n/(n-1)
// counts that comes from another core, at the rate measured for that. Bytes of the buffers go at
// the rates of a working set as large as the buffers. The slowest of these counts, because a core
// can overlap them. Equal loads and stores take a copy's time (an update's in the buffers of an
// all_reduce or reduce_scatter in place, if that is less), the rest that of reads or writes. One
// message is added: a line hand-off, or with more ranks than cores a switch.
#pragma once

#include <cstddef>
#include <optional>

#include "cli/bench/bench_case.h"
#include "cli/bench/machine_limits.h"

namespace bench {

struct Bounds {
  double absolute_us = 0, private_us = 0;
};

bool has_bounds(Kind kind);

// The bytes of its own buffers that a rank touches in successive operations.
std::size_t working_set(const Case& c, bool in_place, int ranks, int buffer_pairs);

// For two ranks or more over shared memory; nothing for a collective without a model.
std::optional<Bounds> bounds(const Limits& limits, const Case& c, bool in_place, int ranks,
                             int buffer_pairs);

}  // namespace bench
