#include "launcher/lead/monitor/nccl_verdict.h"

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

constexpr std::uint8_t kAllReduce = 0, kBroadcast = 3, kFloat = 8;

// A rank that has enqueued so many all_reduces on the communicator.
NcclProgress enqueues(std::uint64_t enqueued, std::uint64_t comm = 1) {
  NcclProgress at{.comm = comm, .name = comm == 1 ? "world" : "pipe", .enqueued = enqueued};
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(enqueued, kNcclCalls); ++i) {
    at.last.push_back({.count = 4, .root = 0, .what = kAllReduce, .dtype = kFloat});
  }
  return at;
}

NcclProgress on_gpu(std::uint64_t enqueued, std::uint64_t begun, std::uint64_t open) {
  NcclProgress at = enqueues(enqueued);
  at.kernels = true;
  at.begun = begun;
  at.open = open;
  return at;
}

}  // namespace

TEST_CASE("nccl verdict: equal ranks, or one alone, say nothing") {
  CHECK_FALSE(nccl_verdict({}));
  CHECK_FALSE(nccl_verdict({{0, {enqueues(5)}}}));
  CHECK_FALSE(nccl_verdict({{0, {enqueues(5)}}, {1, {enqueues(5)}}}));
  CHECK_FALSE(nccl_verdict({{0, {enqueues(5, 1)}}, {1, {enqueues(7, 2)}}}));
}

TEST_CASE("nccl verdict: the rank that has enqueued fewer collectives") {
  const NcclRecords records = {
      {0, {enqueues(3)}}, {1, {enqueues(900)}}, {2, {enqueues(2)}}, {3, {enqueues(3)}}};
  const auto verdict = nccl_verdict(records);
  REQUIRE(verdict);
  CHECK(verdict->ranks == RankSet{2});
  CHECK(verdict->sentence ==
        "rank 2 has not enqueued collective #3, all_reduce (count 4, float), on NCCL communicator "
        "world, where rank 0-1,3 are waiting");
}

TEST_CASE("nccl verdict: several may lack it, and one may have called none at all") {
  const auto verdict = nccl_verdict({{0, {enqueues(1)}}, {1, {enqueues(0)}}, {2, {enqueues(0)}}});
  REQUIRE(verdict);
  CHECK(verdict->ranks == RankSet{1, 2});
  CHECK(verdict->sentence.find("rank 1-2 have not enqueued collective #1") == 0);
}

TEST_CASE("nccl verdict: a rank that waits on another communicator is not at fault") {
  // Rank 1 lacks #6 of the first, as it waits for rank 2 on the second.
  const auto verdict = nccl_verdict(
      {{0, {enqueues(6, 1)}}, {1, {enqueues(5, 1), enqueues(9, 2)}}, {2, {enqueues(8, 2)}}});
  REQUIRE(verdict);
  CHECK(verdict->ranks == RankSet{2});
  CHECK(verdict->sentence.find("on NCCL communicator pipe, where rank 1 is waiting") !=
        std::string::npos);
}

TEST_CASE("nccl verdict: a circle over two communicators") {
  const auto verdict = nccl_verdict({{0, {enqueues(6, 1), enqueues(8, 2)}},
                                     {1, {enqueues(5, 1), enqueues(9, 2)}},
                                     {2, {enqueues(6, 1)}}});
  REQUIRE(verdict);
  CHECK(verdict->ranks == RankSet{0, 1});
  CHECK(verdict->sentence.find("rank 0-1 wait for each other on different NCCL communicators") ==
        0);
}

TEST_CASE("nccl verdict: a rank that waits in a message is at fault only if no other is") {
  // Rank 1 waits for a message of rank 2, so both lack a collective that rank 0 has enqueued.
  NcclProgress pipe = enqueues(0, 2);
  pipe.last_operation = 9;
  pipe.message = true;
  NcclRecords records = {{0, {enqueues(6)}}, {1, {enqueues(5), pipe}}, {2, {enqueues(5)}}};
  CHECK(nccl_verdict(records)->ranks == RankSet{2});
  records[1][0].last_operation = 10;  // a collective came after the message
  CHECK(nccl_verdict(records)->ranks == RankSet{1, 2});
  records[1][0].last_operation = 0;
  records[2].push_back(pipe);
  CHECK(nccl_verdict(records)->ranks == RankSet{1, 2});
}

TEST_CASE("nccl verdict: of several communicators the one with the fewest culprits") {
  const auto verdict = nccl_verdict({{0, {enqueues(6, 1), enqueues(4, 2)}},
                                     {1, {enqueues(5, 1)}},
                                     {2, {enqueues(5, 1), enqueues(3, 2)}}});
  REQUIRE(verdict);
  CHECK(verdict->ranks == RankSet{2});
  CHECK(verdict->sentence.find("communicator pipe") != std::string::npos);
}

TEST_CASE("nccl verdict: a communicator that a rank has destroyed is left out") {
  NcclRecords records = {{0, {enqueues(6)}}, {1, {enqueues(5)}}};
  CHECK(nccl_verdict(records));
  records[0][0].destroyed = true;
  CHECK_FALSE(nccl_verdict(records));
}

TEST_CASE("nccl verdict: another function, count, type or root") {
  for (const NcclCall other : {NcclCall{4, 0, kBroadcast, kFloat},
                               NcclCall{5, 0, kAllReduce, kFloat}, NcclCall{4, 0, kAllReduce, 9}}) {
    NcclRecords records = {{0, {enqueues(20)}}, {1, {enqueues(22)}}, {2, {enqueues(25)}}};
    records[1][0].last[13] = other;  // number 14
    const auto verdict = nccl_verdict(records);
    REQUIRE(verdict);
    CHECK(verdict->ranks == RankSet{1});
    CHECK(verdict->sentence.find("collective #14 on NCCL communicator world is not the same: ") ==
          0);
    CHECK(verdict->sentence.find("rank 0,2 have called all_reduce (count 4, float)") !=
          std::string::npos);
  }
}

TEST_CASE("nccl verdict: of two that differ neither is known to be right") {
  NcclRecords records = {{0, {enqueues(2)}}, {1, {enqueues(2)}}};
  records[0][0].last[1].what = kBroadcast;
  const auto verdict = nccl_verdict(records);
  REQUIRE(verdict);
  CHECK(verdict->ranks == RankSet{0, 1});
  CHECK(verdict->sentence ==
        "collective #2 on NCCL communicator world is not the same: rank 0 has called broadcast "
        "(count 4, float, root 0), rank 1 has called all_reduce (count 4, float)");
}

TEST_CASE("nccl verdict: only collectives with a root compare it") {
  NcclRecords records = {{0, {enqueues(2)}}, {1, {enqueues(2)}}};
  records[0][0].last[1].root = 7;
  CHECK_FALSE(nccl_verdict(records));
  for (auto& [rank, all] : records) all[0].last[1].what = kBroadcast;
  CHECK(nccl_verdict(records));
}

TEST_CASE("nccl verdict: a GPU that earlier work holds, if kernels are recorded") {
  const NcclRecords records = {
      {0, {on_gpu(9, 7, 7)}}, {1, {on_gpu(9, 6, 0)}}, {2, {on_gpu(9, 7, 7)}}};
  const auto verdict = nccl_verdict(records);
  REQUIRE(verdict);
  CHECK(verdict->ranks == RankSet{1});
  CHECK(verdict->sentence ==
        "rank 1 has enqueued collective #7, all_reduce (count 4, float), on NCCL communicator "
        "world, but earlier work still holds the GPU; rank 0,2 are waiting");
  CHECK_FALSE(nccl_verdict({{0, {on_gpu(9, 7, 7)}}, {1, {on_gpu(9, 7, 7)}}}));
}

TEST_CASE("nccl verdict: a process with several GPUs counts by the last of them") {
  const auto verdict =
      nccl_verdict({{0, {enqueues(3), enqueues(2)}}, {1, {enqueues(3), enqueues(3)}}});
  REQUIRE(verdict);
  CHECK(verdict->ranks == RankSet{0});
}

TEST_CASE("nccl verdict: values that no plug-in writes do no harm") {
  NcclRecords records = {{0, {enqueues(3)}}, {1, {enqueues(3)}}};
  records[0][0].last[2].what = 250;
  records[1][0].enqueued = UINT64_MAX;
  records[1][0].name = "\x1b[2J";
  const auto verdict = nccl_verdict(records);
  REQUIRE(verdict);
  CHECK(verdict->sentence.find('\x1b') == std::string::npos);
  records[0][0].enqueued = UINT64_MAX;  // it ends
  CHECK(nccl_verdict(records));
}

namespace {

// As NCCL's RAS service tells it.
NcclProgress launched_of(const std::string& function, std::uint64_t count,
                         std::optional<std::uint64_t> others = {}) {
  return {.comm = 0xab, .ranks = 4, .enqueued = count, .function = function, .others = others};
}

}  // namespace

TEST_CASE("nccl verdict: a rank is behind ranks that are known by their count only") {
  const auto verdict = nccl_verdict({{1, {launched_of("AllReduce", 41, 42)}}});
  REQUIRE(verdict);
  CHECK(verdict->ranks == RankSet{1});
  CHECK(verdict->sentence ==
        "rank 1 has not enqueued AllReduce #42 on NCCL communicator 00000000000000ab, where other "
        "ranks are waiting");
  CHECK_FALSE(nccl_verdict({{1, {launched_of("AllReduce", 43, 42)}}}));  // who waits for whom?
}

TEST_CASE("nccl verdict: another function in the place of the one that most ranks have called") {
  const auto of_most = launched_of("AllReduce", 42), not_there = launched_of("AllGather", 3);
  const NcclRecords all = {{0, {of_most, not_there}},
                           {1, {launched_of("AllReduce", 41), launched_of("AllGather", 4)}},
                           {2, {of_most, not_there}}};
  const NcclRecords named = {
      {1, {launched_of("AllReduce", 41, 42), launched_of("AllGather", 4, 3)}}};
  for (const NcclRecords& records : {all, named}) {
    const auto verdict = nccl_verdict(records);
    REQUIRE(verdict);
    CHECK(verdict->ranks == RankSet{1});
    CHECK(verdict->sentence ==
          "rank 1 has enqueued AllGather #4 in the place of AllReduce #42 on NCCL communicator "
          "00000000000000ab");
  }
}
