// Which algorithm a call takes, and its sizes. Apart from the programs of the algorithms, so that
// dlaunch-bench can predict a choice without them.
#include <algorithm>
#include <bit>
#include <cmath>

#include "ring/plan/host_costs.h"
#include "ring/plan/schedule.h"

namespace dlaunch {
namespace {

// With that many times the square root of their number many ranks exchange frames by racks; racks
// and a grid need it twice at least.
constexpr double kMostOthers = 3;

}  // namespace

Tuning tuning_within_host(int ranks, bool crowded) {
  constexpr std::size_t kInFlight = 1 << 20;
  Tuning tuning;
  if (crowded) {
    tuning.star_bytes = ranks <= tuning.exchange_ranks ? 256 << 10 : 64 << 10;
    tuning.star_ranks = tuning.exchange_ranks;
    tuning.exchange_ranks = 2;
  } else {
    tuning.star_bytes = 32 << 10;
    tuning.pair_bytes = 3 << 19;
    tuning.doubling_bytes = 8 << 10;
    tuning.exchange_bytes = 128 << 10;
  }
  const std::size_t granule = std::bit_floor(kInFlight / static_cast<std::size_t>(ranks));
  if (granule <= tuning.granule_bytes) return tuning;
  tuning.granule_bytes = granule;
  tuning.window = 1;
  return tuning;
}

Tuning tuning_between_hosts(Duration round_trip) {
  constexpr double kBytesPerSecond = 10e9 / 8;
  constexpr std::size_t kLeast = 6, kMost = 64;  // granules
  Tuning tuning;
  const double held = to_seconds(round_trip) * kBytesPerSecond;
  const double granules = held / static_cast<double>(tuning.granule_bytes);
  tuning.window = std::min(kMost, kLeast + static_cast<std::size_t>(std::min(granules, 1e3)));

  constexpr double kReducedPerSecond = 1e9;
  const double latency = to_seconds(round_trip) / 2;
  const auto at_least = [&](std::size_t least, double bytes) {
    return std::clamp(static_cast<std::size_t>(bytes), least, kMostExchanged);
  };
  tuning.exchange_bytes = at_least(tuning.exchange_bytes, latency * kSlowBytesPerSecond);
  tuning.latency = round_trip / 2;
  tuning.pair_bytes = at_least(tuning.pair_bytes, latency * kReducedPerSecond);
  // Exchanges need many frames, but these are cheap beside the latency.
  if (round_trip >= kFarAway) tuning.exchange_ranks = tuning.direct_ranks;
  return tuning;
}

bool has_algorithm(Collective collective, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::exchange:
    case Algorithm::doubling:
      return collective == Collective::all_reduce;
    case Algorithm::star:
      return collective == Collective::all_reduce || collective == Collective::reduce;
    case Algorithm::tree:
      return has_algorithm(collective, Algorithm::star) || collective == Collective::broadcast;
    case Algorithm::direct:
      return collective != Collective::broadcast && collective != Collective::barrier;
    case Algorithm::ring:
      return traits_of(collective).reduces || collective == Collective::all_gather;
    case Algorithm::grid:
    case Algorithm::racks:
      return has_algorithm(collective, Algorithm::ring) && collective != Collective::reduce;
    case Algorithm::chain:
      return collective == Collective::broadcast;
    case Algorithm::copy:
    case Algorithm::dissemination:
      break;
  }
  return false;
}

int grid_columns(int ranks) { return std::max(2, static_cast<int>(std::lround(std::sqrt(ranks)))); }

Algorithm for_large_data(const Shape& shape, int ranks, const Tuning& tuning) {
  if (takes_racks(shape, ranks, tuning)) return Algorithm::racks;
  const bool direct = ranks <= tuning.direct_ranks || shape.in_one_pass;
  return direct ? Algorithm::direct : Algorithm::ring;
}

// Of more than direct_ranks ranks each exchanges frames with few others only. If those of one host
// were among them, that host would get each byte once for each.
bool takes_racks(const Shape& shape, int ranks, const Tuning& tuning) {
  const bool has = has_algorithm(shape.collective, Algorithm::racks);
  if (!has || shape.in_order || shape.in_one_pass) return false;
  const auto racks = racks_among(shape, tuning);
  if (!racks || ranks <= tuning.direct_ranks) return racks != nullptr;
  std::size_t largest = 0;
  for (int i = 0; i < racks->groups(); ++i) largest = std::max(largest, racks->ranks_of(i).size());
  const double others = static_cast<double>(largest) + racks->groups() - 2;
  return others <= kMostOthers * std::sqrt(ranks) &&
         (!shape.members.empty() || !tuning.several_on_host);
}

std::shared_ptr<const RankGroups> racks_among(const Shape& shape, const Tuning& tuning) {
  if (!tuning.racks || shape.members.empty()) return tuning.racks;
  const auto racks = std::make_shared<const RankGroups>(tuning.racks->among(shape.members));
  const bool matter = racks->groups() > 1 && racks->groups() < std::ssize(shape.members);
  return matter ? racks : nullptr;
}

bool takes_tree(const Shape& shape, int ranks, const Tuning& tuning) {
  return ranks > tuning.tree_above && !shape.in_order && !shape.in_one_pass;
}

Algorithm algorithm_of(const Shape& shape, int ranks, const Tuning& tuning) {
  if (ranks == 1) return Algorithm::copy;
  if (tuning.forced) return *tuning.forced;
  const std::size_t bytes = shape.count * shape.element_bytes;
  const bool small = bytes <= tuning.small_bytes;
  const Algorithm large = for_large_data(shape, ranks, tuning);
  const Algorithm with_one = takes_tree(shape, ranks, tuning) ? Algorithm::tree : Algorithm::star;
  switch (shape.collective) {
    case Collective::all_reduce:
      if (ranks == 2 && bytes <= tuning.pair_bytes) return Algorithm::exchange;
      if (ranks <= tuning.exchange_ranks && bytes * (ranks - 1) <= tuning.exchange_bytes) {
        return Algorithm::exchange;
      }
      if (tuning.latency) return cheapest_between_hosts(shape, ranks, tuning);
      if (bytes <= tuning.doubling_bytes) return Algorithm::doubling;
      return bytes <= tuning.star_bytes ? with_one : large;
    case Collective::reduce:
      if (ranks <= tuning.star_ranks) return Algorithm::star;
      if (tuning.latency) return cheapest_between_hosts(shape, ranks, tuning);
      return small ? with_one : large;
    case Collective::reduce_scatter:
    case Collective::all_gather:
      return tuning.latency ? cheapest_between_hosts(shape, ranks, tuning) : large;
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return Algorithm::direct;
    case Collective::broadcast:
      return small ? Algorithm::tree : Algorithm::chain;
    case Collective::barrier:
    case Collective::all_reduce_shards:  // these never get here
    case Collective::compressed_average:
    case Collective::scan:
    case Collective::exscan:
    case Collective::all_reduce_some:
      break;
  }
  return Algorithm::dissemination;
}

}  // namespace dlaunch
