// Schedules for hosts in several racks, and which ranks share one.
#include <algorithm>
#include <cstring>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ring/plan/schedule.h"
#include "schedule_world.h"

namespace dlaunch {
namespace {

using Racks = std::vector<int>;  // the rack of each rank

std::shared_ptr<const RankGroups> groups_of(const Racks& racks) {
  std::vector<int> first_of;
  for (const int rack : racks) {
    first_of.push_back(static_cast<int>(std::ranges::find(racks, rack) - racks.begin()));
  }
  return std::make_shared<const RankGroups>(first_of);
}

Tuning rack_tuning(const Racks& racks, std::size_t granule, std::size_t window) {
  return {.granule_bytes = granule * sizeof(float),
          .window = window,
          .forced = Algorithm::racks,
          .racks = groups_of(racks)};
}

// The mean as the owner of the slice makes it: first its own rack, then each other rack's sum.
float rack_mean(const Exchange& world, const RankGroups& racks, std::size_t i, int owner,
                int ranks) {
  const auto value = [&](int r) { return world.input(r)[i]; };
  const auto add = [&](float sum, int r) { return sum + value(r); };
  const auto sum_of = [&](int rack) {
    const auto& there = racks.ranks_of(rack);
    return std::accumulate(there.begin() + 1, there.end(), value(there[0]), add);
  };
  float sum = sum_of(racks.group_of(owner));
  for (int rack = 0; rack < racks.groups(); ++rack) {
    if (rack != racks.group_of(owner)) sum += sum_of(rack);
  }
  return sum / static_cast<float>(ranks);
}

Exchange::Values expected_by_racks(const Exchange& world, const Shape& shape,
                                   const RankGroups& racks, int rank, int ranks) {
  Exchange::Values values;
  if (shape.collective == Collective::all_gather) {
    for (int r = 0; r < ranks; ++r) {
      const auto part = world.input(r);
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  }
  const bool scatter = shape.collective == Collective::reduce_scatter;
  for (int owner = 0; owner < ranks; ++owner) {
    if (scatter && owner != rank) continue;
    const std::size_t each = shape.count / ranks, rest = shape.count % ranks;
    const auto o = static_cast<std::size_t>(owner);
    const Part slice = scatter ? part_of(shape, owner)
                               : Part{each * o + std::min(o, rest), each + (o < rest ? 1 : 0)};
    for (std::size_t i = 0; i < slice.count; ++i) {
      values.push_back(rack_mean(world, racks, slice.first + i, owner, ranks));
    }
  }
  return values;
}

void check_racks(const Shape& shape, const Racks& racks, std::size_t granule, std::size_t window) {
  const int ranks = static_cast<int>(racks.size());
  for (const bool in_place : {false, true}) {
    if (in_place && !shape.counts.empty()) continue;
    Exchange world(shape, ranks, rack_tuning(racks, granule, window), in_place);
    INFO(fmt::format("{} racks {} count {} granule {} window {} in place {}",
                     collective_name(shape.collective), fmt::join(racks, ","), shape.count, granule,
                     window, in_place));
    REQUIRE(world.execute(static_cast<unsigned>(shape.count * 31 + granule + window)));
    for (int r = 0; r < ranks; ++r) {
      const auto want = expected_by_racks(world, shape, *groups_of(racks), r, ranks);
      const auto have = world.result(r, want.size());
      REQUIRE((want.empty() || std::memcmp(want.data(), have.data(), want.size() * 4) == 0));
    }
  }
}

constexpr Collective kByRacks[] = {Collective::all_reduce, Collective::reduce_scatter,
                                   Collective::all_gather};

TEST_CASE("racks: all forms give the reference's bits at every count, granule and window") {
  for (const Racks& racks :
       {Racks{0, 1}, Racks{0, 0, 0}, Racks{0, 0, 1}, Racks{0, 1, 1}, Racks{0, 0, 1, 1},
        Racks{0, 1, 0, 1, 0}, Racks{0, 0, 0, 0, 1}, Racks{0, 1, 2, 2, 2, 2},
        Racks{0, 0, 0, 1, 1, 2, 2, 2}, Racks{0, 0, 0, 1, 1, 1, 2, 2, 2}, Racks{0, 1, 2, 3}}) {
    for (const Collective collective : kByRacks) {
      for (const std::size_t count : {0, 1, 7, 40}) {
        for (const std::size_t granule : {1, 3}) {
          for (const std::size_t window : {1, 2, 5}) {
            check_racks({collective, count, 4}, racks, granule, window);
          }
        }
      }
    }
  }
}

TEST_CASE("racks: parts may differ, or be empty") {
  for (const Racks& racks : {Racks{0, 0, 0, 1, 1, 2, 2, 2}, Racks{0, 1, 1, 1, 1, 1, 2}}) {
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
      Shape shape{collective, 0, 4};
      for (std::size_t r = 0; r < racks.size(); ++r) shape.counts.push_back(r * 5 % 7);
      for (const std::size_t window : {1, 3}) check_racks(shape, racks, 2, window);
    }
  }
}

// The bytes that the ranks of a rack send to those of others.
std::size_t sent_out_of(int rack, const Shape& shape, const Racks& racks, const Tuning& tuning) {
  std::size_t bytes = 0;
  for (std::size_t r = 0; r < racks.size(); ++r) {
    if (racks[r] != rack) continue;
    const Program program =
        make_program(shape, static_cast<int>(r), static_cast<int>(racks.size()), tuning);
    for (const Step& step : program.steps) {
      if (step.kind != StepKind::send || racks[static_cast<std::size_t>(step.peer)] == rack)
        continue;
      bytes += step.bytes;
    }
  }
  return bytes;
}

TEST_CASE("racks: each byte leaves a rack once, and no rank sends more than directly") {
  const Racks racks{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
  constexpr std::size_t kBytes = std::size_t{12} << 20;
  Tuning tuning = rack_tuning(racks, 16 << 10, 4);
  const Shape sum{Collective::all_reduce, kBytes / 4, 4};
  const Shape parts{Collective::all_gather, kBytes / 12 / 4, 4};
  CHECK(sent_out_of(1, sum, racks, tuning) == 2 * kBytes * 2 / 3);
  CHECK(sent_out_of(1, parts, racks, tuning) == kBytes / 3 * 2);
  for (const Shape& shape : {sum, parts}) {
    tuning.forced = Algorithm::racks;
    const std::size_t by_racks = sent_out_of(-1, shape, Racks(12, -1), tuning);
    CHECK(by_racks == 0);
    std::size_t most = 0;
    for (int r = 0; r < 12; ++r) {
      std::size_t bytes = 0;
      for (const Step& step : make_program(shape, r, 12, tuning).steps) {
        if (step.kind == StepKind::send) bytes += step.bytes;
      }
      most = std::max(most, bytes);
    }
    CHECK(most == (shape.collective == Collective::all_reduce ? 2 : 1) * kBytes / 12 * 11);
    tuning.forced = Algorithm::direct;
    const std::size_t crossing = shape.collective == Collective::all_reduce ? 2 : 1;
    CHECK(sent_out_of(1, shape, racks, tuning) == crossing * kBytes / 12 * 4 * 8);
  }
}

TEST_CASE("racks: what waits for its sum has bounds, also of many ranks") {
  Racks racks(256);
  for (std::size_t r = 0; r < racks.size(); ++r) racks[r] = static_cast<int>(r / 32);
  const Program program = make_program({Collective::all_reduce, std::size_t{256} << 18, 4}, 5, 256,
                                       rack_tuning(racks, 16 << 10, 9));
  CHECK(program.scratch_bytes <= std::size_t{20} << 20);
}

// Racks of one host, as of hosts that do not know theirs, beside a large one.
TEST_CASE("racks: the ranks of a large rack share the work for small ones") {
  Racks racks(24, 0);
  for (std::size_t r = 12; r < racks.size(); ++r) racks[r] = static_cast<int>(r);
  const Tuning tuning = rack_tuning(racks, 16 << 10, 4);
  const Shape shape{Collective::reduce_scatter, 64 << 10, 4};
  const std::size_t all = shape.count * 4 * racks.size();
  std::size_t most_sent = 0, most_scratch = 0;
  for (std::size_t r = 0; r < racks.size(); ++r) {
    const Program program = make_program(shape, static_cast<int>(r), 24, tuning);
    std::size_t sent = 0;
    for (const Step& step : program.steps) sent += step.kind == StepKind::send ? step.bytes : 0;
    most_sent = std::max(most_sent, sent);
    most_scratch = std::max(most_scratch, program.scratch_bytes);
  }
  CHECK(most_sent <= all);
  CHECK(most_scratch <= std::size_t{16} << 20);
}

// -- The choice

TEST_CASE("racks: large sums and parts go by racks, small ones as ever") {
  Tuning tuning = tuning_between_hosts(std::chrono::microseconds(200));
  tuning.racks = groups_of({0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
  const auto algorithm = [&](Collective collective, std::size_t bytes) {
    const std::size_t count = collective == Collective::all_reduce ? bytes / 4 : bytes / 64;
    return algorithm_of({collective, count, 4}, 16, tuning);
  };
  for (const Collective collective : kByRacks) {
    CHECK(algorithm(collective, 64 << 20) == Algorithm::racks);
    CHECK(algorithm(collective, 1 << 20) == Algorithm::racks);
    CHECK(algorithm(collective, 256) != Algorithm::racks);
  }
  CHECK(algorithm_of({Collective::broadcast, 64 << 20, 1, 0}, 16, tuning) == Algorithm::chain);
  Shape in_order{Collective::all_reduce, 64 << 20, 1};
  in_order.in_order = true;
  CHECK(algorithm_of(in_order, 16, tuning) == Algorithm::direct);
  Shape averages{Collective::all_reduce, 64 << 20, 2};
  averages.in_one_pass = true;
  CHECK(algorithm_of(averages, 16, tuning) == Algorithm::direct);
  CHECK(describe_algorithm(Algorithm::racks, tuning).find("within racks") != std::string::npos);
}

TEST_CASE("racks: many ranks go by racks only if each then exchanges frames with few") {
  Tuning tuning = tuning_between_hosts(std::chrono::microseconds(200));
  const auto algorithm = [&](Collective collective, const Racks& racks) {
    tuning.racks = groups_of(racks);
    const int ranks = static_cast<int>(racks.size());
    return algorithm_of({collective, 64 << 20, 4}, ranks, tuning);
  };
  Racks four(64), pair(64), halves(64);
  for (int r = 0; r < 64; ++r) {
    four[static_cast<std::size_t>(r)] = r / 16;
    pair[static_cast<std::size_t>(r)] = std::max(1, r);
    halves[static_cast<std::size_t>(r)] = r / 32;
  }
  CHECK(algorithm(Collective::all_reduce, four) == Algorithm::racks);
  CHECK(algorithm(Collective::all_reduce, pair) == Algorithm::ring);
  CHECK(algorithm(Collective::all_reduce, halves) == Algorithm::ring);
  // Several ranks of one host would each take the same bytes from outside.
  tuning.several_on_host = true;
  CHECK(algorithm(Collective::all_gather, four) == Algorithm::ring);
  Shape of_column{Collective::all_reduce, 64 << 20, 1};
  for (int r = 0; r < 64; r += 2) of_column.members.push_back(r);
  tuning.racks = groups_of(four);
  CHECK(algorithm_of(of_column, 32, tuning) == Algorithm::racks);
}

TEST_CASE("racks: the algorithm of a reduce is the same as without them") {
  for (int ranks = 3; ranks <= 8; ++ranks) {
    Racks racks(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) racks[static_cast<std::size_t>(r)] = r * 2 / ranks;
    for (const std::size_t bytes : {8, 1 << 10, 1 << 16, 1 << 26}) {
      Tuning tuning = tuning_between_hosts(std::chrono::microseconds(200));
      const Shape shape{Collective::reduce, bytes, 1, 1};
      const Algorithm without = algorithm_of(shape, ranks, tuning);
      tuning.racks = groups_of(racks);
      CHECK(algorithm_of(shape, ranks, tuning) == without);
      // A sum of many bytes does not go to one rank.
      const Shape sum{Collective::all_reduce, std::size_t{1} << 26, 1};
      CHECK(algorithm_of(sum, ranks, tuning) == Algorithm::racks);
    }
  }
}

TEST_CASE("racks: those of a call's members count") {
  Tuning tuning = tuning_between_hosts(std::chrono::microseconds(200));
  tuning.racks = groups_of({0, 0, 0, 0, 1, 1, 1, 1});
  const auto algorithm = [&](const std::vector<int>& members) {
    Shape shape{Collective::all_reduce, 64 << 20, 1};
    shape.members = members;
    return algorithm_of(shape, static_cast<int>(members.size()), tuning);
  };
  CHECK(algorithm({0, 2, 4, 6}) == Algorithm::racks);
  CHECK(algorithm({0, 1, 2, 3}) == Algorithm::direct);  // one rack
  CHECK(algorithm({0, 7}) == Algorithm::direct);        // a rack each
  Shape shape{Collective::all_reduce, 64 << 20, 1};
  shape.members = {1, 3, 4, 6};
  std::size_t out = 0;
  for (const int rank : {1, 3}) {
    for (const Step& step : make_program(shape, rank, 8, tuning).steps) {
      if (step.kind == StepKind::send && step.peer >= 4) out += step.bytes;
    }
  }
  CHECK(out == shape.count);
}

// -- Which ranks share a rack

std::vector<int> rack_numbers(const std::vector<std::string>& racks,
                              const std::vector<int>& host_of) {
  std::vector<int> found;
  if (const auto grouped = rack_groups(racks, host_of)) {
    for (std::size_t r = 0; r < racks.size(); ++r) {
      found.push_back(grouped->group_of(static_cast<int>(r)));
    }
  }
  return found;
}

TEST_CASE("racks: ranks are grouped by the lowest switches that some hosts share") {
  const std::vector<int> hosts{0, 1, 2, 3};
  using Found = std::vector<int>;
  CHECK(rack_numbers({"a", "a", "b", "b"}, hosts) == Found{0, 0, 1, 1});
  CHECK(rack_numbers({"a", "b", "a", "b"}, hosts) == Found{0, 1, 0, 1});
  CHECK(rack_numbers({"s.a", "s.a", "t.a", "t.a"}, hosts) == Found{0, 0, 1, 1});
  CHECK(rack_numbers({"s.a", "s.b", "t.a", "t.b"}, hosts) ==
        Found{0, 0, 1, 1});  // a host in each rack
  CHECK(rack_numbers({"", "", "", ""}, hosts).empty());
  CHECK(rack_numbers({"a", "a", "a", "a"}, hosts).empty());
  CHECK(rack_numbers({"a", "b", "c", "d"}, hosts).empty());
  CHECK(rack_numbers({"s.a", "s.b", "s.c", "s.d"}, hosts).empty());
  // A host that does not know its rack has one of its own, with all its ranks.
  CHECK(rack_numbers({"a", "a", "", ""}, {0, 1, 2, 2}) == Found{0, 0, 1, 1});
  CHECK(rack_numbers({"a", "", "a", "b"}, hosts) == Found{0, 1, 0, 2});
  // Several ranks of a host are no reason.
  CHECK(rack_numbers({"a", "a", "b", "b"}, {0, 0, 2, 2}).empty());
}

TEST_CASE("racks: groups of some ranks keep the ranks together that were together") {
  const RankGroups all({0, 1, 0, 1, 4, 4});
  const RankGroups some = all.among({1, 2, 3, 5});
  CHECK(some.groups() == 3);
  CHECK(some.ranks_of(0) == std::vector<int>{0, 2});
  CHECK(some.group_of(1) == 1);
  CHECK(some.place_of(2) == 1);
}

}  // namespace
}  // namespace dlaunch
