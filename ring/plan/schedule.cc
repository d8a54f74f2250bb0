#include "ring/plan/schedule.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "base/contract.h"
#include "ring/plan/schedule_algorithms.h"

namespace dlaunch {
namespace {

// Makes the program as if the members were all ranks, then uses their numbers among all.
Program make_members_program(const Shape& shape, int rank, int ranks, const Tuning& tuning) {
  const auto& members = shape.members;
  const auto location = [&](int r) {
    return static_cast<int>(std::find(members.begin(), members.end(), r) - members.begin());
  };
  Tuning among = tuning;
  among.racks = racks_among(shape, tuning);
  among.several_on_host = false;
  Shape inner = shape;
  inner.members.clear();
  if (inner.root >= 0) inner.root = location(inner.root);
  Program program = make_program(inner, location(rank), static_cast<int>(members.size()), among);
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
  std::vector<bool> seen(static_cast<std::size_t>(ranks));
  for (std::int16_t& peer : program.peers) {
    peer = static_cast<std::int16_t>(members[peer]);
    seen[peer] = true;
  }
  for (int d = 1; d < ranks; ++d) {
    const int other = (rank + d) % ranks;
    if (!seen[other]) program.peers.push_back(static_cast<std::int16_t>(other));
  }
  return program;
}

}  // namespace

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
    case Algorithm::grid:
      return "grid";
    case Algorithm::ring:
      return "ring";
    case Algorithm::racks:
      return "racks";
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
    case Algorithm::grid:
      return "to the owner of each slice, along rows and columns of ranks";
    case Algorithm::ring:
      return fmt::format("cut-through ring, {}, {} ahead", pieces, tuning.window);
    case Algorithm::racks:
      return "to the owner of each slice, within racks and between them";
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
  const Algorithm algorithm = algorithm_of(shape, ranks, tuning);
  // The sends of a grid wait for the copy: it makes its own.
  if (algorithm != Algorithm::grid) copy_own_data(shape, b);
  switch (algorithm) {
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
    case Algorithm::grid:
      grid_schedule(shape, b);
      break;
    case Algorithm::ring:
      ring_schedule(shape, tuning, b);
      break;
    case Algorithm::racks:
      rack_schedule(shape, tuning, b);
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

std::size_t most_to_one(const Shape& shape, int rank, int ranks, const Tuning& tuning) {
  Tuning whole = tuning;
  whole.granule_bytes = PTRDIFF_MAX;  // what goes to each rank does not depend on the granules
  return make_program(shape, rank, ranks, whole).most_to_one;
}

}  // namespace dlaunch
