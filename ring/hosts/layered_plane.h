// The plane of ranks on several hosts. An all_reduce crosses each link between hosts once, however
// many ranks a host has:
//
//   large   reduce_scatter among the ranks of each host (shared memory); each rank exchanges its
//   slice
//           with those of the same place on the other hosts (sockets); all_gather on each host. Cut
//           into blocks, so that the hosts exchange one while the next is being reduced.
//   small   reduced to the first rank of each host, exchanged between these, broadcast on each
//   host.
//
// A broadcast goes from the root to the ranks of the same place on other hosts, and on from these.
// Everything else goes over the sockets from rank to rank. A wire codec encodes what float32 sums
// and averages, and complex64 ones as pairs of these, send between hosts: each rank's contribution
// once, and the result once. All ranks decode the same encoded result, so they get the same bits.
#pragma once

#include <memory>

#include "ring/call/abort_flag.h"
#include "ring/call/plane.h"
#include "ring/call/roll_call.h"
#include "ring/kernels/wire_codec.h"
#include "ring/plan/rank_groups.h"

namespace dlaunch {

// Wire codecs apply to sums and averages of this type.
inline bool has_codecs(dl_dtype dtype) { return dtype == DL_FLOAT32 || dtype == DL_COMPLEX64; }

// local: the shared memory of this rank's host, with its ranks in ascending order; null if each
// host has one rank. between: the sockets of all ranks. hosts.even() must be true. call_roll may be
// null, as for a stream plane.
std::unique_ptr<Plane> make_layered_plane(int rank, const RankGroups& hosts,
                                          std::unique_ptr<Plane> local,
                                          std::unique_ptr<Plane> between, AbortFlag& abort,
                                          WireCodec codec, CallRoll call_roll = nullptr);

}  // namespace dlaunch
