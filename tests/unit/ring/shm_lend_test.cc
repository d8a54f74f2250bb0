// Inputs that are lent: read by the takers from the giver's memory.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ring/shm_read.h"
#include "shm_world.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

constexpr Collective kMoving[] = {Collective::all_gather, Collective::all_to_all,
                                  Collective::broadcast, Collective::gather, Collective::scatter};
constexpr std::size_t kCount = 40000;

bool reading_is_allowed() {
  std::uint64_t word = 0;
  const ReadProbe probe = make_read_probe(&word);
  word = probe.word;
  return can_read(probe);
}

Call moving(Collective collective, std::uint64_t seq) {
  return {.collective = collective,
          .count = kCount,
          .dtype = DL_INT32,
          .root = traits_of(collective).rooted ? static_cast<int>(seq % 3) : -1,
          .seq = seq,
          .deadline = steady_now() + 60s};
}

std::int32_t value(std::uint64_t seq, int rank, std::size_t i) {
  return static_cast<std::int32_t>(seq * 1000003 + static_cast<std::size_t>(rank) * 7919 + i);
}

// One call of one rank. Its input is spoilt as soon as the call returns, before others may have.
bool right(Plane& plane, Call call, int rank, int ranks) {
  const Shape shape = shape_of(call, ranks);
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::int32_t> in(kCount * n), out(kCount * n, -1);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(call.seq, rank, i);
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
      equal = equal && out[d.to + i] == value(call.seq, giver, d.from + i);
    }
  }
  return equal;
}

TEST_CASE("shm: an input is the giver's own again as soon as its call returns") {
  for (const bool lent : {true, false}) {
    ShmWorld world(3, 64, lent);
    std::uint64_t seq = 0;
    for (int turn = 0; turn < 20; ++turn) {
      for (const Collective collective : kMoving) {
        CAPTURE(collective_name(collective));
        const Call call = moving(collective, ++seq);
        if (reading_is_allowed()) {
          CHECK((world.plane(0).explain(call) == "shm: read from whoever gives it") == lent);
        }
        world.each([&](int rank) { CHECK(right(world.plane(rank), call, rank, 3)); });
      }
    }
  }
}

TEST_CASE("shm: more ranks than cores lend what goes to one rank, and stage what goes to all") {
  ShmWorld world(4, 2, true);
  std::uint64_t seq = 0;
  for (int turn = 0; turn < 5; ++turn) {
    for (const Collective collective : kMoving) {
      CAPTURE(collective_name(collective));
      const Call call = moving(collective, ++seq);
      const bool to_one =
          collective != Collective::all_gather && collective != Collective::broadcast;
      if (reading_is_allowed()) {
        CHECK((world.plane(0).explain(call) == "shm: read from whoever gives it") == to_one);
      }
      world.each([&](int rank) { CHECK(right(world.plane(rank), call, rank, 4)); });
    }
  }
}

TEST_CASE("shm: an input that nobody can read in place is passed through shared memory") {
  const std::size_t bytes = (kCount * sizeof(std::int32_t) + 4095) / 4096 * 4096;
  void* const hidden = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(hidden != MAP_FAILED);
  CHECK_FALSE(can_be_read(hidden, bytes));
  ::munmap(hidden, bytes);
  // Nor is a list lent, which lies in many places.
  ShmWorld world(2, 64, true);
  world.each([&](int rank) {
    std::vector<std::int32_t> first(kCount / 2, rank), second(kCount / 2, rank + 10);
    const void* const in[] = {first.data(), second.data()};
    void* const out[] = {first.data(), second.data()};
    const std::size_t counts[] = {kCount / 2, kCount / 2};
    const auto list = make_tensor_list(2, in, out, counts);
    REQUIRE(list);
    Call call = moving(Collective::broadcast, 1);
    call.root = 0;
    call.list = &*list;
    CHECK(world.plane(rank).run(call));
    CHECK(first == std::vector<std::int32_t>(kCount / 2, 0));
    CHECK(second == std::vector<std::int32_t>(kCount / 2, 10));
  });
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
          in[i] = static_cast<float>(value(seq, rank, i) % 64);
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
          for (int r = 0; r < 3; ++r) sum += static_cast<float>(value(seq, r, i) % 64);
          equal = equal && (in_place ? in : out)[i] == sum;
        }
        CHECK(equal);
        std::fill(in, in + 2 * kFloats, -1.0f);
      }
    });
  }
}

TEST_CASE("shm: reading a process that has ended, or another one than is meant, is refused") {
  std::uint64_t word = 0;
  ReadProbe probe = make_read_probe(&word);
  CHECK_FALSE(can_read(probe));  // the word is not there
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  probe.pid = child;
  CHECK_FALSE(can_read(probe));
  iovec to{&word, sizeof word};
  const auto read = read_process(child, probe.address, {&to, 1}, sizeof word);
  REQUIRE_FALSE(read);
  CHECK(read.error().os_errno != 0);
}

}  // namespace
}  // namespace dlaunch
