#include "tests/sim/round_book.h"

#include <algorithm>

#include <fmt/format.h>

namespace dlaunch::sim {

bool RoundBook::enter(int round, int rank, int size, int worker) {
  Round& met = rounds_[round];
  if (met.seats.empty()) met.seats.resize(static_cast<std::size_t>(size));
  if (met.seats.size() != static_cast<std::size_t>(size)) {
    wrong_ = fmt::format("round {} has {} members for some and {} for others", round,
                         met.seats.size(), size);
    return false;
  }
  int& seat = met.seats[static_cast<std::size_t>(rank)];
  if (seat != 0) {
    wrong_ =
        fmt::format("workers {} and {} are both rank {} of round {}", seat, worker, rank, round);
  }
  seat = worker;
  return std::find(met.seats.begin(), met.seats.end(), 0) == met.seats.end();
}

bool RoundBook::contribute(int number, int rank, int collective, const Contribution& part) {
  Round& round = rounds_[number];
  const auto index = static_cast<std::size_t>(collective);
  if (round.collectives.size() <= index) round.collectives.resize(index + 1);
  auto& parts = round.collectives[index];
  parts.resize(round.seats.size());
  auto& place = parts[static_cast<std::size_t>(rank)];
  if (place) wrong_ = fmt::format("rank {} contributes twice in round {}", rank, number);
  place = part;
  for (const auto& other : parts) {
    if (other && (other->round != number || other->step != part.step)) {
      wrong_ = fmt::format("round {}: parts of step {} of round {} and of step {} of round {} meet",
                           number, other->step, other->round, part.step, part.round);
    }
  }
  return std::all_of(parts.begin(), parts.end(), [](const auto& p) { return p.has_value(); });
}

RoundBook::Sum RoundBook::sum(int round, int collective) {
  Sum sum;
  for (const auto& part : rounds_[round].collectives[static_cast<std::size_t>(collective)]) {
    sum.parts += part->part;
    if (part->version > 0 && part->version == sum.version && part->state != sum.state) {
      wrong_ = fmt::format("round {}: two states of version {}", round, sum.version);
    }
    if (part->version >= sum.version) sum.state = part->state;
    sum.version = std::max(sum.version, part->version);
  }
  return sum;
}

}  // namespace dlaunch::sim
