// Schedules of the collectives over stream sockets: pure functions from (call, rank, ranks) to a
// Program. All ranks compute theirs from the same arguments. So each socket carries exactly the
// frames that both ends expect, in the same order, and no frame needs to say where it belongs.
//
// Reductions, but for those by a tree, around a ring or by racks, combine every element in one pass
// over all ranks' values in rank order, rounding once: the result does not depend on how the data
// is cut. Averages of float16 use neither, because a partial sum may be out of range.
// - Small: few ranks exchange everything (one message latency; two ranks send no more that way than
//   by any other, so they do it for longer). More do so through others (log2(n) latencies and
//   frames of each) or send to rank 0, which answers (two latencies and 2(n-1) frames in all): with
//   more ranks than cores each frame costs a system call and often a context switch on the same few
//   cores. Above Tuning::tree_above ranks a tree takes the place of rank 0, which would need a
//   socket for each of them. Between hosts ring/plan/host_costs.h weighs these against the
//   following.
// - Large: each rank owns a slice, takes the others' values of it and sends the results back,
//   granule by granule, while later granules still come in. That moves the least possible bytes per
//   rank, 2(n-1)/n of the data for an all_reduce, in two message latencies. Granule and window keep
//   what is in flight small enough for the processor's caches: the loopback device is twice as fast
//   then.
// - Medium, between hosts: slices, too, but values and results go along the columns and rows of a
//   grid of ranks. That takes four latencies, about 4 sqrt(n) messages and 1.5 times the bytes.
//   With many ranks a reduce_scatter and an all_gather of that size also use the grid, instead of
//   the ring.
// A reduce has the root in the place of rank 0, or slices whose results go to the root alone; two
// ranks, and few that share cores, send the root everything, granule by granule: nothing goes to
// another rank and back.
// Large, between hosts in several racks (Tuning::racks): slices, in two levels. A rack's sum of a
// slice leaves the rack once, and a result enters it once, because the lines between racks often
// carry less than those of their hosts together. That takes four latencies; each rank sends the
// least possible bytes.
// Large, and above Tuning::direct_ranks ranks, the ring (Patarasuk and Yuan, 2009) with
// cut-through: a granule is forwarded as soon as it is reduced. Its windows bound the buffers; see
// ring/plan/schedule_reductions.cc.
// Collectives that only move data (gather, scatter, all_to_all, and all_gather up to direct_ranks
// ranks) go straight from rank to rank. Each rank begins with the next one in the circle, so that
// no rank is the first peer of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "ring/call/plane.h"
#include "ring/plan/program.h"
#include "ring/plan/rank_groups.h"

namespace dlaunch {

// From this round trip on, hosts are far from each other: latency counts more than bytes.
inline constexpr Duration kFarAway = std::chrono::milliseconds(2);

// The algorithm of a call.
enum class Algorithm : std::uint8_t {
  copy,
  exchange,
  doubling,
  star,
  direct,
  grid,
  ring,
  tree,
  chain,
  dissemination,
  racks
};
inline constexpr Algorithm kAlgorithms[] = {
    Algorithm::exchange, Algorithm::doubling, Algorithm::star, Algorithm::direct, Algorithm::grid,
    Algorithm::ring,     Algorithm::racks,    Algorithm::tree, Algorithm::chain};
std::string_view algorithm_name(
    Algorithm algorithm);  // "ring"; empty for algorithms without an alternative
bool has_algorithm(Collective collective, Algorithm algorithm);

struct Tuning {
  std::optional<Duration> latency = {};  // between hosts: weighs the algorithms
  std::size_t small_bytes = 64 << 10;    // broadcast: a tree, above a chain; reduce: to the root
  std::size_t doubling_bytes = 0;        // all_reduce: through others;
  std::size_t star_bytes = 0;            // from there on with rank 0
  std::size_t granule_bytes = 64 << 10;  // the unit of pipelining
  std::size_t window = 2;                // granules from a peer that may await their reduction
  int exchange_ranks = 4;                // if what each takes in is at most exchange_bytes
  std::size_t exchange_bytes = 64 << 10;
  std::size_t pair_bytes = 256 << 10;  // two ranks exchange up to here
  int tree_above = 32;                 // ranks: what few send to one, so many send along a tree
  int star_ranks = 2;  // reduce, of any size: all with the root between at most so many
  int direct_ranks = 16;
  std::optional<Algorithm> forced = {};  // one that the collective has
  bool by_rule = false;                  // DLAUNCH_PLAN has changed this
  // The ranks' racks, if there are several and one has several ranks; null: they do not matter.
  std::shared_ptr<const RankGroups> racks = nullptr;
  bool several_on_host = false;  // of all ranks; of a call's members each is on another host
  bool granule_by_rule = false;  // DLAUNCH_PLAN names it
};

// On one host system calls cost more than waiting for a whole granule, as long as those of all
// peers together stay in the cache. Two ranks exchange up to 1.5 MiB: that moves as much as slices
// do, and adds twice as much, but in one turn. Of 8 and 16 ranks with a core each, through others
// took 0.7 and 0.6 times as long as all with one up to 128 B, 0.9 times for 8 KiB, and 1.2 and 1.6
// times for 16 KiB; at 32 KiB slices are as fast as all with one.
//
// crowded: the ranks outnumber the cores. Then the cost is not the chain of messages, but the turn
// at a core that each message takes. Up to four ranks are fastest with the fewest messages, up to
// 256 KiB (measured with two cores; above that, slices are as fast).
Tuning tuning_within_host(int ranks, bool crowded);

// Between hosts an exchange saves one latency of the two that a direct reduction has, and costs
// 1 - 2/n of what each takes in. At 1 Gbit/s that pays for as much as half a round trip carries, or
// nearly: on faster links for more. Two ranks send no more that way, only reduce it in one go.
//
// The window has to cover what a link holds: at 10 Gbit/s, for the longest round trip
// between two ranks; at most 4 MiB, 1 Gbit/s for 32 ms. More than that only queues up on its way to
// a rank to which several send, until a switch has no room for it.
Tuning tuning_between_hosts(Duration round_trip);

// " (DLAUNCH_PLAN)" behind the words for a choice that a plan rule made; else "".
std::string rule_note(bool by_rule);

// The columns of the grid of at least two ranks: about their square root, and at least 2.
int grid_columns(int ranks);

// Direct, the ring or racks: the algorithm for more data than any other one takes.
Algorithm for_large_data(const Shape& shape, int ranks, const Tuning& tuning);
// Whether the ranks of a call are in several racks that matter to it.
bool takes_racks(const Shape& shape, int ranks, const Tuning& tuning);
// The racks of those ranks; null: they do not matter.
std::shared_ptr<const RankGroups> racks_among(const Shape& shape, const Tuning& tuning);
// Whether a tree takes the place of one rank in a small reduction.
bool takes_tree(const Shape& shape, int ranks, const Tuning& tuning);
// Decides from facts that all ranks share.
Algorithm algorithm_of(const Shape& shape, int ranks, const Tuning& tuning);
// One pass over all ranks' values, in their order, makes each result of a reduction.
constexpr bool keeps_order(Algorithm algorithm) {
  return algorithm != Algorithm::ring && algorithm != Algorithm::tree &&
         algorithm != Algorithm::racks;
}
// Ranks get data, or results, by way of other ranks.
constexpr bool passes_on(Algorithm algorithm) {
  return algorithm == Algorithm::doubling || algorithm == Algorithm::grid ||
         algorithm == Algorithm::ring || algorithm == Algorithm::racks ||
         algorithm == Algorithm::tree || algorithm == Algorithm::chain;
}
// "direct, granules of 48 KiB, 3 ahead"
std::string describe_algorithm(Algorithm algorithm, const Tuning& tuning);

// With Shape::members, `rank` must be a member: the program is for the members, over the sockets of
// all ranks.
Program make_program(const Shape& shape, int rank, int ranks, const Tuning& tuning);
// Its most_to_one, in little time and memory whatever the size of the data.
std::size_t most_to_one(const Shape& shape, int rank, int ranks, const Tuning& tuning);

}  // namespace dlaunch
