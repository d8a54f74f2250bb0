// Lent inputs: other ranks read them in the memory of the rank that lends them.
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "shm_world.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

constexpr Collective kMoving[] = {Collective::all_gather, Collective::all_to_all,
                                  Collective::broadcast, Collective::gather, Collective::scatter};
constexpr std::size_t kLentFloats = 40000;

Call moving(Collective collective, std::uint64_t seq) {
  return {.collective = collective,
          .count = kLentFloats,
          .dtype = DL_INT32,
          .root = traits_of(collective).rooted ? static_cast<int>(seq % 3) : -1,
          .seq = seq,
          .deadline = steady_now() + 60s};
}

std::int32_t lent_value(std::uint64_t seq, int rank, std::size_t i) {
  return static_cast<std::int32_t>(seq * 1000003 + static_cast<std::size_t>(rank) * 7919 + i);
}

// One call of one rank. Its input, which it gives at `in`, is spoilt as soon as the call returns,
// before others may have.
bool right(Plane& plane, Call call, int rank, int ranks, std::span<std::int32_t> in) {
  const Shape shape = shape_of(call, ranks);
  std::vector<std::int32_t> out(in.size(), -1);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = lent_value(call.seq, rank, i);
  const bool broadcast = call.collective == Collective::broadcast;
  call.in = in.data();
  call.out = broadcast && rank == call.root ? in.data() : out.data();
  const auto done = plane.run(call);
  std::fill(in.begin(), in.end(), -2);
  bool equal = done.has_value();
  for (int giver = 0; equal && giver < ranks; ++giver) {
    const Delivery d = delivery(shape, giver, rank);
    if (broadcast && rank == call.root) continue;
    for (std::size_t i = 0; d.exists && i < d.count; ++i) {
      equal = equal && out[d.to + i] == lent_value(call.seq, giver, d.from + i);
    }
  }
  return equal;
}

// Memory that all read in place, memory that none can, and some of each.
TEST_CASE("shm: a rank may change its input as soon as its call returns") {
  for (const int cores : {2, 64}) {
    for (const int lenders : {0, 1, 3}) {
      CAPTURE(cores);
      CAPTURE(lenders);
      ShmWorld world(3, cores, false);  // one heap: thread sanitizer sees it all
      const std::size_t count = kLentFloats * 3;
      const auto shared = world.allocate(count * sizeof(std::int32_t));
      std::vector<std::vector<std::int32_t>> own(3, std::vector<std::int32_t>(count));
      std::uint64_t seq = 0;
      for (int turn = 0; turn < 10; ++turn) {
        for (const Collective collective : kMoving) {
          CAPTURE(collective_name(collective));
          const Call call = moving(collective, ++seq);
          world.each([&](int rank) {
            const auto r = static_cast<std::size_t>(rank);
            auto* const in =
                rank < lenders ? reinterpret_cast<std::int32_t*>(shared[r]) : own[r].data();
            CHECK(right(world.plane(rank), call, rank, 3, {in, count}));
          });
        }
      }
    }
  }
}

TEST_CASE("shm: reductions read memory of all ranks in place, call after call") {
  constexpr std::size_t kFloats = 150000;
  for (const int cores : {1, 64}) {
    ShmWorld world(3, cores, false);
    const auto memory = world.allocate(2 * kFloats * sizeof(float));
    world.each([&](int rank) {
      auto* const in = reinterpret_cast<float*>(memory[static_cast<std::size_t>(rank)]);
      float* const out = in + kFloats;
      for (std::uint64_t seq = 1; seq <= 12; ++seq) {
        const std::size_t count = kFloats - seq * 1001;
        const bool in_place = seq % 2 == 0;
        for (std::size_t i = 0; i < count; ++i)
          in[i] = static_cast<float>(lent_value(seq, rank, i) % 64);
        REQUIRE(world.plane(rank).run({.collective = Collective::all_reduce,
                                       .in = in,
                                       .out = in_place ? in : out,
                                       .count = count,
                                       .dtype = DL_FLOAT32,
                                       .op = DL_SUM,
                                       .seq = seq,
                                       .deadline = steady_now() + 60s}));
        bool equal = true;
        for (std::size_t i = 0; i < count; ++i) {
          float sum = 0;
          for (int r = 0; r < 3; ++r) sum += static_cast<float>(lent_value(seq, r, i) % 64);
          equal = equal && (in_place ? in : out)[i] == sum;
        }
        CHECK(equal);
        std::fill(in, in + 2 * kFloats, -1.0f);
      }
    });
  }
}

}  // namespace
}  // namespace dlaunch
