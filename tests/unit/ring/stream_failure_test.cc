#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <latch>
#include <random>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ring/kernels/program_op.h"
#include "ring/stream/frame.h"
#include "stream_world.h"

namespace dlaunch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// An all_reduce of float32 ones in memory that it owns.
struct Ones {
  explicit Ones(std::size_t count, std::uint64_t seq = 1) : values(count, 1.0F) {
    call = {.collective = Collective::all_reduce,
            .in = values.data(),
            .out = values.data(),
            .count = count,
            .dtype = DL_FLOAT32,
            .op = DL_SUM,
            .seq = seq,
            .deadline = steady_now() + seconds(20)};
  }
  std::vector<float> values;
  Call call;
};

// Blocks until a frame from the peer has begun to arrive, so that it is in the middle of its call.
void wait_for_bytes(const StreamWorld& world, int rank, int peer) {
  pollfd ready{.fd = world.raw[rank][peer], .events = POLLIN, .revents = 0};
  poll(&ready, 1, 60'000);
}

// Like the communicator, whose control thread tells the others why a call has failed here.
Result<void> run_as_communicator(StreamWorld& world, int rank, const Call& call) {
  auto outcome = world.ends[rank]->run(call);
  if (!outcome) {
    for (auto& flag : world.flags) flag->raise(outcome.error());
  }
  return outcome;
}

TEST_CASE("a peer that dies in the middle of a call is named, and later calls fail the same way") {
  for (const Wire wire : {Wire::unix_socket, Wire::tcp}) {
    for (const std::size_t count : {std::size_t{2}, std::size_t{4} << 20}) {
      StreamWorld world(4, wire);
      const auto first = world.each<Result<void>>([&](int rank) -> Result<void> {
        if (rank == 2) {
          if (count > 2) wait_for_bytes(world, 2, 0);
          world.ends[2].reset();
          return {};
        }
        return run_as_communicator(world, rank, Ones(count, 17).call);
      });
      for (const int r : {0, 1, 3}) {
        INFO(words(first[r]));
        CHECK(is(first[r], Errc::peer_lost, 2));
        CHECK(words(first[r]).starts_with("rank 2 closed its connection during all_reduce #17"));
        CHECK(words(world.ends[r]->run(Ones(1, 18).call)) == words(first[r]));
      }
    }
  }
}

TEST_CASE("the abort flag's error is preferred to the socket's, unless its rank has left") {
  // On a busy machine the control thread of rank 0 learns late why rank 1 has ended, or that it has
  // said goodbye, after which nothing raises the flag.
  enum class End { failed, left, left_as_told_later };
  const auto outcomes_of = [](End end) {
    std::atomic<bool> has_left = end == End::left, over = false;
    StreamWorld world(3, Wire::unix_socket, 0, {.has_left = [&](int) { return has_left.load(); }});
    return world.each<Result<void>>([&](int rank) -> Result<void> {
      if (rank == 0) {
        auto outcome = world.ends[0]->run(Ones(100'000).call);
        over = true;
        return outcome;
      }
      if (rank == 2) return {};
      wait_for_bytes(world, 1, 0);
      world.ends[1].reset();
      const auto ended = steady_now();
      std::this_thread::sleep_for(milliseconds(150));
      has_left = end != End::failed;
      while (has_left && !over) std::this_thread::sleep_for(milliseconds(1));
      world.flags[0]->raise({.code = Errc::peer_lost, .what = "rank 2 was killed", .rank = 2});
      if (steady_now() - ended > seconds(2)) return Error{.what = "late"};
      return {};
    });
  };
  for (const End end : {End::failed, End::left, End::left_as_told_later}) {
    CAPTURE(static_cast<int>(end));
    const int named = end == End::failed ? 2 : 1;
    // On a busy machine a thread sometimes stands still for seconds, and its news come too late.
    // Such a try does not count.
    std::vector<Result<void>> outcomes;
    for (int i = 0; i < 5; ++i) {
      outcomes = outcomes_of(end);
      if (outcomes[1]) break;
    }
    CHECK(is(outcomes[0], Errc::peer_lost, named));
    CHECK(outcomes[1]);
  }
}

TEST_CASE("raising the abort flag wakes a waiting rank long before its deadline") {
  StreamWorld world(2);
  TimePoint raised, returned;
  const auto outcomes = world.each<Result<void>>([&](int rank) -> Result<void> {
    if (rank == 1) {
      // Rank 0 has begun, polls for a moment, since nobody answers it, and then sleeps.
      wait_for_bytes(world, 1, 0);
      std::this_thread::sleep_for(milliseconds(50));
      raised = steady_now();
      world.flags[0]->raise({.code = Errc::aborted, .what = "aborted by the user"});
      return {};
    }
    auto outcome = world.ends[0]->run(Ones(1000).call);
    returned = steady_now();
    return outcome;
  });
  CHECK(words(outcomes[0]) == "aborted by the user");
  CHECK(returned - raised < seconds(10));  // of 20
  CHECK(words(world.ends[0]->run(Ones(5).call)) == "aborted by the user");
}

TEST_CASE("a deadline names the ranks that have not arrived") {
  constexpr const char* kMissing = ": waiting for rank 1,4; arrived: 0,2-3";
  // On a busy machine a thread sometimes stands still for 2 s, and the others name its rank. Such a
  // try does not count.
  std::vector<Result<void>> outcomes;
  bool all_name_them = false;
  for (int i = 0; i < 5 && !all_name_them; ++i) {
    StreamWorld world(5);
    std::latch there(3);  // a thread that starts late is none that does not come
    outcomes = world.each<Result<void>>([&](int rank) -> Result<void> {
      if (rank == 1 || rank == 4) return {};
      Ones ones(100'000, 9);
      there.arrive_and_wait();
      ones.call.deadline = steady_now() + seconds(2);
      return world.ends[rank]->run(ones.call);
    });
    all_name_them = true;
    for (const int r : {0, 2, 3}) all_name_them &= words(outcomes[r]).ends_with(kMissing);
  }
  for (const int r : {0, 2, 3}) {
    INFO(words(outcomes[r]));
    CHECK(is(outcomes[r], Errc::timeout, 1));
    CHECK(words(outcomes[r]).starts_with("all_reduce #9 timed out after "));
    CHECK(words(outcomes[r]).ends_with(kMissing));
  }
}

TEST_CASE("a deadline ends a call also while its data move") {
  StreamWorld world(2, Wire::unix_socket, 4096);
  const auto outcomes = world.each<Result<void>>([&](int rank) -> Result<void> {
    Ones ones(16 << 20, 9);
    ones.call.deadline = steady_now() + milliseconds(5);
    return world.ends[rank]->run(ones.call);
  });
  for (const auto& outcome : outcomes) {
    INFO(words(outcome));
    REQUIRE(!outcome);
    CHECK(outcome.error().code == Errc::timeout);
  }
}

TEST_CASE("a deadline does not name ranks that the call does not talk to") {
  StreamWorld world(5);
  // One after the other: what they send waits in the sockets of rank 0, which hears from all.
  std::string told[5];
  for (const int rank : {1, 3, 4, 0}) {
    Ones ones(1, 9);
    ones.call.deadline = steady_now() + milliseconds(50);
    told[rank] = words(world.ends[rank]->run(ones.call));
  }
  INFO(told[0]);
  CHECK(told[0].ends_with(": waiting for rank 2; arrived: 0-1,3-4"));
  INFO(told[1]);
  CHECK(told[1].ends_with(": waiting for rank 0 or a rank for which that one waits; arrived: 1"));
}

TEST_CASE("a deadline names the ranks of the roll call, however little this rank knows") {
  const auto outcome_with = [](RollCall roll) {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    const UniqueFd other(fds[1]);
    AbortFlag flag;
    std::vector<UniqueFd> sockets(2);
    sockets[1].reset(fds[0]);
    auto group = SocketGroup::open(0, 2, 1, std::move(sockets), flag, {});
    REQUIRE(group);
    const auto plane = make_stream_plane(std::move(*group), [&](std::uint64_t seq) {
      CHECK(seq == 9);
      return roll;
    });
    Ones ones(1, 9);
    ones.call.deadline = steady_now() + milliseconds(10);
    return words(plane->run(ones.call));
  };
  CHECK(outcome_with({.silent = {1}}).ends_with(": waiting for rank 1 (no answer); arrived: 0"));
  CHECK(outcome_with({.outside = {1}})
            .ends_with(": waiting for rank 1 (not in this call); arrived: 0"));
  CHECK(outcome_with({.behind = {1}})
            .ends_with(": waiting for rank 1 (in an earlier call); arrived: 0"));
  CHECK(outcome_with({.silent = {0}, .behind = {1}})
            .ends_with(": waiting for rank 0 (no answer); arrived: "));
  CHECK(outcome_with({}).ends_with(": waiting for rank 1; arrived: 0"));
}

TEST_CASE("different calls are an error that names both ranks") {
  StreamWorld world(3);
  const auto outcomes = world.each<Result<void>>([&](int rank) -> Result<void> {
    Ones ones(rank == 1 ? 6 : 5, 4);
    return run_as_communicator(world, rank, ones.call);
  });
  for (int r = 0; r < 3; ++r) {
    INFO(words(outcomes[r]));
    REQUIRE(!outcomes[r]);
    CHECK(outcomes[r].error().code == Errc::mismatch);
    CHECK(words(outcomes[r]).find("rank 1 called all_reduce(count 6, float, sum)") !=
          std::string::npos);
    CHECK(words(outcomes[r]).find("called all_reduce(count 5, float, sum)") != std::string::npos);
  }
}

TEST_CASE("a rank that made another call and continued is a mismatch, not a hang") {
  StreamWorld world(2);
  Ones ones(5, 1);
  ones.call.collective = Collective::broadcast;
  ones.call.root = 0;
  REQUIRE(world.ends[0]->run(ones.call));
  ones.call.collective = Collective::barrier;
  const auto outcome = world.ends[1]->run(ones.call);
  REQUIRE(is(outcome, Errc::mismatch, 0));
  CHECK(words(outcome) ==
        "collective #1: rank 1 called barrier, rank 0 called broadcast(count 5, float, root 0)");
}

TEST_CASE("a rank that skipped a collective is a mismatch, not a hang") {
  StreamWorld world(2);
  const auto outcomes = world.each<Result<void>>(
      [&](int rank) { return run_as_communicator(world, rank, Ones(5, rank == 0 ? 7 : 8).call); });
  for (int r = 0; r < 2; ++r) {
    REQUIRE(!outcomes[r]);
    CHECK(outcomes[r].error().code == Errc::mismatch);
    CHECK(words(outcomes[r]).starts_with("collective #"));
    CHECK(words(outcomes[r]).find("(its collective #") != std::string::npos);
  }
}

TEST_CASE("garbage on a socket is a protocol error that names the rank") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    StreamWorld world(3);
    std::vector<unsigned char> garbage(kFrameHeaderBytes + random() % 200);
    for (auto& byte : garbage) byte = static_cast<unsigned char>(random());
    REQUIRE(write(world.raw[2][0], garbage.data(), garbage.size()) > 0);
    const auto outcome = world.ends[0]->run(Ones(100).call);
    REQUIRE(is(outcome, Errc::protocol, 2));
    CHECK(words(outcome) == "rank 2 sent bytes that are no frame");
  }
}

TEST_CASE("frames of another round and frames of a wrong length are refused") {
  Ones ones(100);
  for (const bool other_round : {false, true}) {
    StreamWorld world(2);
    std::byte frame[kFrameHeaderBytes];
    encode_frame(collective_frame(signature_of(ones.call, 2), other_round ? 400 : 404),
                 StreamWorld::kRound - (other_round ? 1 : 0), frame);
    REQUIRE(write(world.raw[1][0], frame, sizeof frame) == sizeof frame);
    const auto outcome = world.ends[0]->run(ones.call);
    REQUIRE(is(outcome, Errc::protocol, 1));
    CHECK(words(outcome) ==
          (other_round ? "rank 1 sent a frame of round 2, this is round 3"
                       : "rank 1 sent 404 bytes during all_reduce #1 where 400 were expected"));
  }
}

TEST_CASE("a function of the program that fails ends this call and later ones on its plane") {
  const dl_op op = *add_program_op(
      {.function = [](const void*, void*, std::size_t, dl_dtype, void*) { return 42; }}, true);
  StreamWorld world(2);
  const auto said = world.each<std::string>([&](int rank) {
    Ones ones(1000, 7), later(1000, 8);
    ones.call.op = op;
    const auto run = [&](const Call& call) {
      return words(without_exceptions([&] { return world.ends[rank]->run(call); }));
    };
    const std::string first = run(ones.call);
    return first + "; " + run(later.call);
  });
  const std::string failed =
      "all_reduce #7: the function of its operation returned 42 on this rank";
  for (const auto& both : said) CHECK(both == failed + "; " + failed);
  CHECK(remove_program_op(op));
}

}  // namespace
}  // namespace dlaunch
