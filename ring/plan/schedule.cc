#include "ring/plan/schedule.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/contract.h"
#include "ring/plan/host_costs.h"
#include "ring/plan/schedule_algorithms.h"

namespace dlaunch {
namespace {

// Makes the program as if the members were all ranks, then uses their numbers among all.
Program make_members_program(const Shape& shape, int rank, int ranks, const Tuning& tuning) {
  const auto& members = shape.members;
  const auto location = [&](int r) {
    return static_cast<int>(std::find(members.begin(), members.end(), r) - members.begin());
  };
  Shape inner = shape;
  inner.members.clear();
  if (inner.root >= 0) inner.root = location(inner.root);
  Program program = make_program(inner, location(rank), static_cast<int>(members.size()), tuning);
  for (Step& step : program.steps) {
    if (step.peer >= 0) step.peer = static_cast<std::int16_t>(members[step.peer]);
  }
  const auto spread = [&](std::vector<std::vector<std::int32_t>>& by_peer) {
    std::vector<std::vector<std::int32_t>> all(ranks);
    for (std::size_t i = 0; i < by_peer.size(); ++i) all[members[i]] = std::move(by_peer[i]);
    by_peer = std::move(all);
  };
  spread(program.sends);
  spread(program.recvs);
  return program;
}

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

Algorithm algorithm_of(const Shape& shape, int ranks, const Tuning& tuning) {
  if (ranks == 1) return Algorithm::copy;
  if (tuning.forced) return *tuning.forced;
  const std::size_t bytes = shape.count * shape.element_bytes;
  const bool small = bytes <= tuning.small_bytes;
  const Algorithm large = ranks <= tuning.direct_ranks ? Algorithm::direct : Algorithm::ring;
  const bool few = ranks <= tuning.tree_above || shape.in_order;
  const Algorithm with_one = few ? Algorithm::star : Algorithm::tree;
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
      return large;
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return Algorithm::direct;
    case Collective::broadcast:
      return small ? Algorithm::tree : Algorithm::chain;
    case Collective::barrier:
    case Collective::all_reduce_shards:  // these three never get here
    case Collective::scan:
    case Collective::exscan:
      break;
  }
  return Algorithm::dissemination;
}

std::string_view algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::exchange:
      return "exchange";
    case Algorithm::doubling:
      return "doubling";
    case Algorithm::star:
      return "star";
    case Algorithm::direct:
      return "direct";
    case Algorithm::ring:
      return "ring";
    case Algorithm::tree:
      return "tree";
    case Algorithm::chain:
      return "chain";
    case Algorithm::copy:
    case Algorithm::dissemination:
      break;
  }
  return "";
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
    case Algorithm::chain:
      return collective == Collective::broadcast;
    case Algorithm::copy:
    case Algorithm::dissemination:
      break;
  }
  return false;
}

namespace {

std::string words_for(Algorithm algorithm, const Tuning& tuning) {
  const auto pieces = fmt::format("granules of {} KiB", tuning.granule_bytes >> 10);
  switch (algorithm) {
    case Algorithm::copy:
      return "a copy";
    case Algorithm::exchange:
      return "each with each";
    case Algorithm::doubling:
      return "each with each, through other ranks";
    case Algorithm::star:
      return "all with one";
    case Algorithm::direct:
      return fmt::format("straight to the owner of each slice, {}, {} ahead", pieces,
                         tuning.window);
    case Algorithm::ring:
      return fmt::format("cut-through ring, {}, {} ahead", pieces, tuning.window);
    case Algorithm::tree:
      return "binomial tree";
    case Algorithm::chain:
      return "chain, " + pieces;
    case Algorithm::dissemination:
      return "dissemination";
  }
  return "";
}

}  // namespace

std::string rule_note(bool by_rule) {
  return by_rule ? std::string(" (") + contract::kPlan + ")" : "";
}

std::string describe_algorithm(Algorithm algorithm, const Tuning& tuning) {
  return words_for(algorithm, tuning) + rule_note(tuning.by_rule);
}

Program make_program(const Shape& shape, int rank, int ranks, const Tuning& tuning) {
  if (!shape.members.empty()) return make_members_program(shape, rank, ranks, tuning);
  ProgramBuilder b(rank, ranks);
  copy_own_data(shape, b);
  switch (algorithm_of(shape, ranks, tuning)) {
    case Algorithm::copy:
      break;
    case Algorithm::exchange:
      exchange_all_reduce(shape, b);
      break;
    case Algorithm::doubling:
      doubling_all_reduce(shape, b);
      break;
    case Algorithm::star:
      star_reduction(shape, tuning, b);
      break;
    case Algorithm::direct:
      traits_of(shape.collective).reduces ? direct_reduction(shape, tuning, b)
                                          : direct_exchange(shape, tuning, b);
      break;
    case Algorithm::ring:
      ring_schedule(shape, tuning, b);
      break;
    case Algorithm::tree:
      traits_of(shape.collective).reduces ? tree_reduction(shape, b) : binomial_broadcast(shape, b);
      break;
    case Algorithm::chain:
      chain_broadcast(shape, tuning, b);
      break;
    case Algorithm::dissemination:
      dissemination_barrier(b);
      break;
  }
  return b.take();
}

}  // namespace dlaunch
