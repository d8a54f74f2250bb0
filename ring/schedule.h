// Schedules of the collectives over stream sockets: pure functions from (call, rank, ranks) to a
// Program. All ranks compute theirs from the same arguments, so that each socket carries exactly
// the frames both ends expect, in the same order, and no frame needs to say where it belongs.
//
// Reductions, up to Tuning::direct_ranks ranks, are direct: every element has one owner, to whom
// all ranks send theirs and who combines them in one pass in rank order, rounding once; the result
// does not depend on how the data is cut. Small calls make every rank the owner of everything (one
// exchange); larger ones give each rank a slice and send the results back granule by granule, while
// later granules are still coming in. Both move the least possible bytes per rank, 2(n-1)/n of the
// data for a large all_reduce, in two message latencies.
// Above that many ranks, the ring (Patarasuk and Yuan, 2009) with cut-through: a granule is
// forwarded as soon as it is reduced. Its windows bound the buffers; see ring_schedule in the
// source.
#pragma once

#include <cstddef>

#include "ring/plane.h"
#include "ring/program.h"

namespace dlaunch {

struct Tuning {
  std::size_t one_shot_bytes = 64 << 10;  // an all_reduce up to here is one exchange of everything
  std::size_t binomial_bytes = 64 << 10;  // a broadcast up to here goes down a tree, else a chain
  std::size_t granule_bytes = 128 << 10;  // the unit of pipelining
  std::size_t window = 4;                 // granules from a peer that may await their reduction
  int direct_ranks = 16;
};

// What a schedule depends on. Counts as in ring.h; root is -1 except for a broadcast.
struct Shape {
  Collective collective = Collective::barrier;
  std::size_t count = 0;
  std::size_t element_bytes = 1;
  int root = -1;
  bool operator==(const Shape&) const = default;
};

Program make_program(const Shape& shape, int rank, int ranks, const Tuning& tuning);

}  // namespace dlaunch
