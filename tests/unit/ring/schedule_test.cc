#include "ring/plan/schedule.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "schedule_world.h"

namespace dlaunch {
namespace {

// The sum of element i below a place of the tree, where places count from the root.
float tree_sum(const Exchange& world, int ranks, std::size_t i, int root, int place) {
  float sum = world.input((place + root) % ranks)[i];
  const int reach = place == 0 ? ranks : place & -place;
  for (int d = 1; d < reach && place + d < ranks; d *= 2) {
    sum += tree_sum(world, ranks, i, root, place + d);
  }
  return sum;
}

// The mean of element i in the order in which the algorithm combines it; `owner` matters for the
// ring.
float mean(const Exchange& world, int ranks, std::size_t i, Algorithm algorithm, int owner,
           int root = 0) {
  if (algorithm == Algorithm::tree) {
    return tree_sum(world, ranks, i, root, 0) / static_cast<float>(ranks);
  }
  const int first = algorithm == Algorithm::ring ? (owner + 1) % ranks : 0;
  float sum = world.input(first)[i];
  for (int k = 1; k < ranks; ++k) sum += world.input((first + k) % ranks)[i];
  return ranks == 1 ? sum : sum / static_cast<float>(ranks);
}

int owner_of(std::size_t i, std::size_t count, int ranks) {
  int owner = 0;
  const std::size_t each = count / ranks, rest = count % ranks;
  for (std::size_t end = 0;; ++owner) {
    end += each + (static_cast<std::size_t>(owner) < rest ? 1 : 0);
    if (i < end) return owner;
  }
}

Tuning tuning_for(Algorithm algorithm, std::size_t granule, std::size_t window) {
  const bool small = algorithm == Algorithm::exchange || algorithm == Algorithm::star;
  const bool forces = algorithm == Algorithm::doubling || algorithm == Algorithm::grid ||
                      algorithm == Algorithm::tree;
  const auto forced = forces ? std::optional(algorithm) : std::nullopt;
  const std::size_t small_bytes = small ? std::size_t{1} << 20 : 0;
  return {.small_bytes = small_bytes,
          .star_bytes = small_bytes,
          .granule_bytes = granule * sizeof(float),
          .window = window,
          .exchange_ranks = algorithm == Algorithm::exchange ? 64 : 0,
          .exchange_bytes = std::size_t{1} << 20,
          .pair_bytes = 0,
          .star_ranks = 0,
          .direct_ranks = algorithm == Algorithm::ring ? 0 : 64,
          .forced = forced};
}

Exchange::Values expected(const Exchange& world, const Shape& shape, int ranks, int rank,
                          Algorithm algorithm) {
  Exchange::Values values;
  switch (shape.collective) {
    case Collective::all_reduce:
      for (std::size_t i = 0; i < shape.count; ++i) {
        values.push_back(mean(world, ranks, i, algorithm, owner_of(i, shape.count, ranks)));
      }
      break;
    case Collective::reduce_scatter:
      for (std::size_t i = 0; i < part_of(shape, rank).count; ++i) {
        values.push_back(mean(world, ranks, part_of(shape, rank).first + i, algorithm, rank));
      }
      break;
    case Collective::all_gather:
      for (int r = 0; r < ranks; ++r) {
        const auto part = world.input(r);
        values.insert(values.end(), part.begin(), part.end());
      }
      break;
    case Collective::broadcast:
      values = world.input(shape.root);
      break;
    case Collective::reduce:
      for (std::size_t i = 0; rank == shape.root && i < shape.count; ++i) {
        values.push_back(
            mean(world, ranks, i, algorithm, owner_of(i, shape.count, ranks), shape.root));
      }
      break;
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      values.resize(out_count(shape, rank, ranks));
      for (int r = 0; r < ranks; ++r) {
        const Delivery d = delivery(shape, r, rank);
        const auto given = world.input(r);
        for (std::size_t i = 0; d.exists && i < d.count; ++i) values[d.to + i] = given[d.from + i];
      }
      break;
    default:  // barrier, and those that planes never see
      break;
  }
  return values;
}

void check_algorithm(const Shape& shape, int ranks, Algorithm algorithm, std::size_t granule,
                     std::size_t window) {
  // delivery() between places in place is for the planes' tests.
  const bool moves = shape.collective == Collective::gather ||
                     shape.collective == Collective::scatter ||
                     shape.collective == Collective::all_to_all;
  for (const bool in_place : {false, true}) {
    if (in_place && (moves || !shape.counts.empty())) continue;
    const Tuning tuning = tuning_for(algorithm, granule, window);
    Exchange world(shape, ranks, tuning, in_place);
    INFO(fmt::format("{} ranks {} count {} algorithm {} granule {} window {} in place {}",
                     collective_name(shape.collective), ranks, shape.count,
                     static_cast<int>(algorithm), granule, window, in_place));
    REQUIRE(world.execute(static_cast<unsigned>(shape.count * 31 + granule + window)));
    for (int r = 0; r < ranks; ++r) {
      const auto want = expected(world, shape, ranks, r, algorithm);
      const auto have = world.result(r, want.size());
      REQUIRE((want.empty() || std::memcmp(want.data(), have.data(), want.size() * 4) == 0));
    }
  }
}

TEST_CASE("every schedule gives the reference's bits at every world, count, granule and window") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (std::size_t count = 0; count <= 40; ++count) {
      for (const Algorithm algorithm :
           {Algorithm::exchange, Algorithm::doubling, Algorithm::star, Algorithm::tree,
            Algorithm::direct, Algorithm::grid, Algorithm::ring}) {
        for (const std::size_t granule : {1, 3, 8}) {
          for (const std::size_t window : {1, 3}) {
            check_algorithm({Collective::all_reduce, count, 4}, ranks, algorithm, granule, window);
            if (!has_algorithm(Collective::all_gather, algorithm)) continue;
            // These have a block for each rank: fewer counts are enough to meet every case.
            if (count > 20) continue;
            check_algorithm({Collective::reduce_scatter, count, 4}, ranks, algorithm, granule,
                            window);
            check_algorithm({Collective::all_gather, count, 4}, ranks, algorithm, granule, window);
          }
        }
      }
    }
  }
}

TEST_CASE("grids of every form give the reference's bits, also where parts differ or are empty") {
  for (const int ranks : {11, 13, 15, 16, 17, 23}) {
    for (const std::size_t count : {1, 5, 40, 100}) {
      for (const Collective collective :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
        check_algorithm({collective, count, 4}, ranks, Algorithm::grid, 3, 1);
      }
    }
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
      Shape shape{collective, 0, 4};
      for (int r = 0; r < ranks; ++r) shape.counts.push_back(static_cast<std::size_t>(r * 5 % 7));
      check_algorithm(shape, ranks, Algorithm::grid, 3, 1);
    }
  }
}

TEST_CASE("a rank of a grid exchanges frames with few others, also if the ranks are prime") {
  for (const int ranks : {15, 16, 17, 63, 997, 1023, 1024}) {
    const Tuning tuning = tuning_for(Algorithm::grid, 3, 1);
    const int columns = grid_columns(ranks), rows = (ranks + columns - 1) / columns;
    for (const int rank : {0, ranks / 2, ranks - 1}) {
      const Program program = make_program({Collective::all_reduce, 4096, 8}, rank, ranks, tuning);
      const auto used = [](const auto& by_peer) {
        return std::ranges::count_if(by_peer, [](const auto& steps) { return !steps.empty(); });
      };
      CHECK(used(program.sends) <= rows + columns);
      CHECK(used(program.recvs) == used(program.sends));
    }
  }
  CHECK(grid_columns(16) == 4);
  CHECK(grid_columns(2) == 2);
}

TEST_CASE("no grid for an all_gather of few ranks, nor where one part is long") {
  const Tuning tuning = tuning_between_hosts(std::chrono::microseconds(20));
  for (int ranks = 2; ranks <= 16; ++ranks) {
    const Shape shape{Collective::all_gather, 64, 4};
    CHECK(algorithm_of(shape, ranks, tuning) == Algorithm::direct);
  }
  for (const auto collective : {Collective::all_gather, Collective::reduce_scatter}) {
    Shape shape{collective, 0, 4};
    shape.counts.assign(64, 0);
    CHECK(algorithm_of(shape, 64, tuning) == Algorithm::grid);
    shape.counts[5] = std::size_t{1} << 20;
    CHECK(algorithm_of(shape, 64, tuning) == Algorithm::ring);
    shape.counts[5] = 1 << 7;
    CHECK(algorithm_of(shape, 64, tuning) == Algorithm::grid);
    CHECK(make_program(shape, 5, 64, tuning).scratch_bytes <= std::size_t{2} * (64 << 9));
  }
}

TEST_CASE("rooted collectives and all_to_all by every schedule, from and to every root") {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (const std::size_t count : {0, 1, 2, 7, 19, 40}) {
      for (const std::size_t window : {1, 3}) {
        check_algorithm({Collective::all_to_all, count, 4}, ranks, Algorithm::direct, 3, window);
        for (int root = 0; root < ranks; ++root) {
          for (const Algorithm algorithm :
               {Algorithm::star, Algorithm::tree, Algorithm::direct, Algorithm::ring}) {
            check_algorithm({Collective::reduce, count, 4, root}, ranks, algorithm, 3, window);
          }
          check_algorithm({Collective::gather, count, 4, root}, ranks, Algorithm::direct, 3,
                          window);
          check_algorithm({Collective::scatter, count, 4, root}, ranks, Algorithm::direct, 3,
                          window);
        }
      }
    }
  }
}

TEST_CASE("broadcasts reach all ranks from every root, by tree and by chain") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      for (const std::size_t count : {0, 1, 2, 7, 40}) {
        for (const Algorithm algorithm : {Algorithm::star, Algorithm::direct}) {
          check_algorithm({Collective::broadcast, count, 4, root}, ranks, algorithm, 3, 2);
        }
      }
    }
  }
}

// Every rank but one; the barrier must not let anybody pass.
TEST_CASE("no rank passes a barrier before the last one has come") {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (int late = 0; late < ranks; ++late) {
      std::vector<Program> programs;
      std::vector<ProgramRun> runs(ranks);
      for (int r = 0; r < ranks; ++r) {
        programs.push_back(make_program({Collective::barrier, 0, 1}, r, ranks, {}));
      }
      for (int r = 0; r < ranks; ++r) runs[r].begin(programs[r], {}, {});
      std::vector<int> in_flight(ranks * ranks);
      const auto turn = [&](bool with_late) {
        for (bool moved = true; std::exchange(moved, false);) {
          for (int from = 0; from < ranks; ++from) {
            for (int to = 0; to < ranks; ++to) {
              const Step* steps[1];
              int& link = in_flight[from * ranks + to];
              if ((from != late || with_late) && runs[from].next_sends(to, steps) > 0) {
                runs[from].sent(to);
                ++link;
                moved = true;
              }
              if (link > 0 && (to != late || with_late)) {
                runs[to].received(from);
                --link;
                moved = true;
              }
            }
          }
        }
      };
      turn(false);
      for (int r = 0; r < ranks; ++r) REQUIRE(!runs[r].done());
      turn(true);
      for (int r = 0; r < ranks; ++r) REQUIRE(runs[r].done());
    }
  }
}

TEST_CASE("a large all_reduce moves the least possible bytes") {
  for (const int direct : {0, 16}) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      const Shape shape{Collective::all_reduce, std::size_t{840} << 10, 4};
      const std::size_t bytes = shape.count * shape.element_bytes;
      const Program program = make_program(shape, 1, ranks, {.direct_ranks = direct});
      std::size_t sent = 0;
      for (const Step& step : program.steps) {
        if (step.kind == StepKind::send) sent += step.bytes;
      }
      CHECK(sent == 2 * bytes / ranks * (ranks - 1));
      CHECK(program.scratch_bytes <= std::size_t{4} << 20);
    }
  }
}

TEST_CASE("the bytes to one peer are known without the granules, however many bytes they are") {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce,
                                      Collective::broadcast, Collective::all_gather}) {
    const bool rooted = traits_of(collective).rooted;
    const Shape shape{collective, 100'000, 4, rooted ? 1 : -1};
    for (const Algorithm algorithm : kAlgorithms) {
      if (!has_algorithm(collective, algorithm)) continue;
      Tuning tuning;
      tuning.forced = algorithm;
      for (const int rank : {0, 1, 4}) {
        CHECK(most_to_one(shape, rank, 5, tuning) ==
              make_program(shape, rank, 5, tuning).most_to_one);
      }
    }
  }
  const Shape huge{Collective::all_reduce, std::size_t{1} << 40, 4};
  CHECK(most_to_one(huge, 0, 4, Tuning()) == std::size_t{2} << 40);
}

TEST_CASE("on one host, the data in flight to all peers fit a cache, however many peers") {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for (const bool crowded : {false, true}) {
      const Tuning tuning = tuning_within_host(ranks, crowded);
      const Shape shape{Collective::all_reduce, std::size_t{16} << 20, 4};
      if (algorithm_of(shape, ranks, tuning) != dlaunch::Algorithm::direct) continue;
      CHECK(make_program(shape, 0, ranks, tuning).scratch_bytes <= std::size_t{2} << 20);
    }
  }
}

TEST_CASE(
    "ranks that outnumber their cores send the fewest messages, but for two and for much data") {
  const auto algorithm = [](int ranks, bool crowded, std::size_t bytes) {
    return algorithm_of({Collective::all_reduce, bytes, 1}, ranks,
                        tuning_within_host(ranks, crowded));
  };
  for (const int ranks : {3, 4}) {
    CAPTURE(ranks);
    CHECK(algorithm(ranks, false, 8) == dlaunch::Algorithm::exchange);
    CHECK(algorithm(ranks, false, std::size_t{40} << 10) == dlaunch::Algorithm::exchange);
    CHECK(algorithm(ranks, true, 8) == dlaunch::Algorithm::star);
    CHECK(algorithm(ranks, false, std::size_t{256} << 10) == dlaunch::Algorithm::direct);
    CHECK(algorithm(ranks, true, std::size_t{256} << 10) == dlaunch::Algorithm::star);
    CHECK(algorithm(ranks, true, (std::size_t{256} << 10) + 1) == dlaunch::Algorithm::direct);
  }
  CHECK(algorithm(2, false, std::size_t{3} << 19) == dlaunch::Algorithm::exchange);
  CHECK(algorithm(2, false, (std::size_t{3} << 19) + 1) == dlaunch::Algorithm::direct);
  CHECK(algorithm(2, true, std::size_t{1} << 20) == dlaunch::Algorithm::direct);
  for (const bool crowded : {false, true}) {
    CHECK(algorithm(2, crowded, std::size_t{256} << 10) == dlaunch::Algorithm::exchange);
    CHECK(algorithm(5, crowded, 8) ==
          (crowded ? dlaunch::Algorithm::star : dlaunch::Algorithm::doubling));
    CHECK(algorithm(5, crowded, std::size_t{32} << 10) == dlaunch::Algorithm::star);
    CHECK(algorithm(5, crowded, (std::size_t{64} << 10) + 1) == dlaunch::Algorithm::direct);
    CHECK(algorithm(17, crowded, (std::size_t{64} << 10) + 1) == dlaunch::Algorithm::ring);
  }
  CHECK(algorithm(16, false, 8 << 10) == dlaunch::Algorithm::doubling);
  CHECK(algorithm(16, false, (8 << 10) + 1) == dlaunch::Algorithm::star);
}

TEST_CASE("many ranks send small sums along a tree, unless one pass has to make each result") {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce}) {
    for (const int ranks : {32, 33, 1024}) {
      Shape shape{collective, 1024, 8, collective == Collective::reduce ? 5 : -1};
      const Tuning near = tuning_within_host(ranks, true);
      const auto expected = ranks > 32 ? Algorithm::tree : Algorithm::star;
      CHECK(algorithm_of(shape, ranks, near) == expected);
      shape.in_order = true;
      CHECK(algorithm_of(shape, ranks, near) == Algorithm::star);
    }
  }
}

TEST_CASE("averages of float16 have no partial sums, unless a plan wants them") {
  const auto shape = [](Collective collective, std::size_t count, dl_dtype dtype, dl_op op) {
    return shape_of({.collective = collective, .count = count, .dtype = dtype, .op = op, .root = 0},
                    33);
  };
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    for (const std::size_t count : {1UL, 1UL << 10, 1UL << 24}) {
      const Shape average = shape(collective, count, DL_FLOAT16, DL_AVG);
      for (const int ranks : {17, 33, 1024}) {
        for (Tuning tuning : {tuning_within_host(ranks, true), tuning_within_host(ranks, false),
                              tuning_between_hosts(std::chrono::microseconds(200))}) {
          CHECK(keeps_order(algorithm_of(average, ranks, tuning)));
          tuning.forced = Algorithm::ring;
          CHECK(algorithm_of(average, ranks, tuning) == Algorithm::ring);
        }
      }
    }
    const Tuning near = tuning_within_host(33, true);
    const Shape sum = shape(collective, 1 << 24, DL_FLOAT16, DL_SUM);
    CHECK(algorithm_of(sum, 33, near) == Algorithm::ring);
    const Shape wide_average = shape(collective, 1 << 24, DL_BFLOAT16, DL_AVG);
    CHECK(algorithm_of(wide_average, 33, near) == Algorithm::ring);
  }
}

TEST_CASE("a rank of a tree exchanges frames with few others") {
  for (const int ranks : {33, 256, 1000}) {
    for (const int rank : {0, 1, 32, ranks - 1}) {
      const Program program = make_program({Collective::all_reduce, 1, 8}, rank, ranks,
                                           tuning_within_host(ranks, true));
      const auto used = [](const auto& by_peer) {
        return std::ranges::count_if(by_peer, [](const auto& steps) { return !steps.empty(); });
      };
      CHECK(used(program.sends) <= 10);
      CHECK(used(program.recvs) == used(program.sends));
    }
  }
}

TEST_CASE("two ranks, and few that share cores, reduce at the root whatever the size") {
  const auto algorithm = [](int ranks, bool crowded) {
    const Shape shape{Collective::reduce, std::size_t{64} << 20, 4, 1};
    return algorithm_of(shape, ranks, tuning_within_host(ranks, crowded));
  };
  for (const bool crowded : {false, true}) {
    CHECK(algorithm(2, crowded) == dlaunch::Algorithm::star);
    CHECK(algorithm(4, crowded) ==
          (crowded ? dlaunch::Algorithm::star : dlaunch::Algorithm::direct));
    CHECK(algorithm(5, crowded) == dlaunch::Algorithm::direct);
  }
  CHECK(algorithm_of({Collective::reduce, std::size_t{64} << 20, 4, 1}, 2, {}) ==
        dlaunch::Algorithm::star);
}

TEST_CASE("a reduction at the root has room for a window of granules of each rank") {
  const Shape shape{Collective::reduce, std::size_t{64} << 20, 4, 1};
  const Tuning tuning{.granule_bytes = std::size_t{128} << 10, .window = 3};
  CHECK(make_program(shape, 1, 2, tuning).scratch_bytes == 3 * tuning.granule_bytes);
  CHECK(make_program(shape, 0, 2, tuning).scratch_bytes == 0);
  CHECK(make_program({Collective::reduce, 2, 4, 1}, 1, 2, tuning).scratch_bytes == 8);
}

TEST_CASE("two ranks exchange for longer than more ranks do") {
  const Shape shape{Collective::all_reduce, std::size_t{64} << 10, 4};
  CHECK(algorithm_of(shape, 2, {}) == dlaunch::Algorithm::exchange);
  CHECK(algorithm_of(shape, 3, {}) == dlaunch::Algorithm::direct);
  CHECK(algorithm_of({Collective::all_reduce, (std::size_t{64} << 10) + 1, 4}, 2, {}) ==
        dlaunch::Algorithm::direct);
}

}  // namespace
}  // namespace dlaunch

TEST_CASE("schedule: between hosts the window is little more than the link's content") {
  using std::chrono::microseconds;
  CHECK(dlaunch::tuning_between_hosts({}).window == 6);
  CHECK(dlaunch::tuning_between_hosts(microseconds(200)).window == 9);
  CHECK(dlaunch::tuning_between_hosts(microseconds(1500)).window == 34);
  CHECK(dlaunch::tuning_between_hosts(microseconds(20'000)).window == 64);
  CHECK(dlaunch::tuning_between_hosts(std::chrono::hours(1)).window == 64);
}

namespace {

// algorithm(round trip, bytes, ranks) of a call from or to that root; -1: it has none.
auto algorithms_between_hosts(dlaunch::Collective collective, int root) {
  return [=](std::chrono::microseconds round_trip, std::size_t bytes, int ranks) {
    const dlaunch::Shape shape{collective, bytes / 4, 4, root};
    return dlaunch::algorithm_of(shape, ranks, dlaunch::tuning_between_hosts(round_trip));
  };
}

}  // namespace

TEST_CASE("schedule: the farther apart hosts are, the more data they exchange in one step") {
  using std::chrono::microseconds;
  const auto algorithm = algorithms_between_hosts(dlaunch::Collective::all_reduce, -1);
  const microseconds near(200), middle(5000), far(40'000);
  using dlaunch::Algorithm;
  CHECK(algorithm(near, 256 << 10, 2) == Algorithm::exchange);
  CHECK(algorithm(near, 1 << 20, 2) == Algorithm::direct);
  CHECK(algorithm(middle, 1 << 20, 2) == Algorithm::exchange);
  CHECK(algorithm(far, 4 << 20, 2) == Algorithm::exchange);
  CHECK(algorithm(far, 8 << 20, 2) == Algorithm::direct);
  CHECK(algorithm(near, 16 << 10, 4) == Algorithm::exchange);
  CHECK(algorithm(near, 64 << 10, 4) == Algorithm::direct);
  // More than four: latencies and messages of one against the bytes at one.
  const microseconds next(20);
  CHECK(algorithm(next, 8, 8) == Algorithm::doubling);
  CHECK(algorithm(next, 8, 16) == Algorithm::doubling);
  CHECK(algorithm(next, 8 << 10, 16) == Algorithm::grid);
  CHECK(algorithm(next, 64 << 10, 16) == Algorithm::direct);
  CHECK(algorithm(near, 8, 16) == Algorithm::star);
  CHECK(algorithm(near, 4 << 10, 16) == Algorithm::direct);
  CHECK(algorithm(near, 8, 64) == Algorithm::doubling);
  CHECK(algorithm(near, 8, 1024) == Algorithm::doubling);
  CHECK(algorithm(near, 16 << 10, 32) == Algorithm::grid);
  CHECK(algorithm(near, 1 << 20, 64) == Algorithm::grid);
  CHECK(algorithm(near, 4 << 20, 64) == Algorithm::ring);
  CHECK(algorithm(far, 8, 32) == Algorithm::star);
  CHECK(algorithm(far, 1 << 20, 32) == Algorithm::grid);
  CHECK(algorithm(far, 64 << 20, 32) == Algorithm::ring);
  CHECK(algorithm(middle, 64 << 10, 4) == Algorithm::exchange);
  CHECK(algorithm(middle, 256 << 10, 4) == Algorithm::direct);
  CHECK(algorithm(far, 768 << 10, 4) == Algorithm::exchange);
  CHECK(algorithm(far, 128 << 10, 16) == Algorithm::exchange);
  CHECK(algorithm(far, 1 << 20, 16) == Algorithm::direct);
}

TEST_CASE("schedule: between hosts small parts go along a grid if that saves time") {
  using std::chrono::microseconds;
  const microseconds next(20), near(200), far(40'000);
  using dlaunch::Algorithm;
  for (const auto collective :
       {dlaunch::Collective::all_gather, dlaunch::Collective::reduce_scatter}) {
    const auto by_part = algorithms_between_hosts(collective, -1);
    const auto algorithm = [&](microseconds round_trip, std::size_t bytes, int ranks) {
      return by_part(round_trip, bytes / static_cast<std::size_t>(ranks), ranks);
    };
    CHECK(algorithm(near, 1 << 10, 16) == Algorithm::direct);
    CHECK(algorithm(near, 1 << 10, 64) == Algorithm::grid);
    CHECK(algorithm(far, 256 << 10, 32) == Algorithm::grid);
    CHECK(algorithm(near, 8 << 20, 64) == Algorithm::ring);
  }
}

TEST_CASE("schedule: between hosts a small reduce goes to the root directly") {
  using std::chrono::microseconds;
  const auto algorithm = algorithms_between_hosts(dlaunch::Collective::reduce, 1);
  const microseconds near(200), far(40'000);
  using dlaunch::Algorithm;
  CHECK(algorithm(near, 64 << 20, 2) == Algorithm::star);
  CHECK(algorithm(near, 4 << 10, 4) == Algorithm::star);
  CHECK(algorithm(near, 64 << 10, 4) == Algorithm::direct);
  CHECK(algorithm(near, 8, 16) == Algorithm::star);
  CHECK(algorithm(near, 16 << 10, 16) == Algorithm::direct);
  CHECK(algorithm(near, 2 << 10, 32) == Algorithm::star);
  CHECK(algorithm(near, 2 << 10, 64) == Algorithm::tree);
  CHECK(algorithm(near, 1 << 20, 64) == Algorithm::ring);
  CHECK(algorithm(far, 48 << 10, 64) == Algorithm::star);
}
