// Ranks that are stopped, traced, or in an uninterruptible sleep.
#include <doctest/doctest.h>

#include "hang_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("a stopped rank: at once a warning, and at its own limit a replacement") {
  HangWorld world = one_missing();
  world.run(10s);
  world.set(3, ProcessState::stopped);
  world.run(100s);
  CHECK(world.take_log() ==
        Log{
            "10.25 warn 3: rank 3 is stopped (SIGSTOP, SIGTSTP, or it reads the terminal); it is "
            "replaced after 30 s",
            "38.25 dump 0,3",
            "40.25 replace 3: rank 3 is stopped (SIGSTOP, SIGTSTP, or it reads the terminal), for "
            "30 s",
        });
}

TEST_CASE("the wait for a stopped rank starts from zero when it continues") {
  HangWorld world = one_missing();
  world.set(3, ProcessState::stopped);
  world.run(27s);
  world.set(3, ProcessState::running);
  world.run(29s);
  CHECK(world.take_log() ==
        Log{
            "0.25 warn 3: rank 3 is stopped (SIGSTOP, SIGTSTP, or it reads the terminal); it is "
            "replaced after 30 s",
            "27.25 warn 3: rank 3 is no longer stopped",
        });
  world.run(35s);
  const Log log = world.take_log();
  REQUIRE(log.size() == 3);
  CHECK(log[0].starts_with("57 warn 3: rank 3 has not entered all_reduce #17"));
  CHECK(log[2].starts_with("87 replace 3: "));
}

TEST_CASE("a rank may stand stopped for ever where that is allowed") {
  HangWorld world(HangConfig{.hang_timeout = 60s, .stop_limit = Duration::max()});
  world.put(0, 17, true);
  world.put(1, 16, false);
  world.set(1, ProcessState::stopped);
  world.run(1s);
  CHECK(world.take_log() == Log{"0.25 warn 1: rank 1 is stopped (SIGSTOP, SIGTSTP, or it reads the "
                                "terminal); the others wait"});
  check_quiet(world, 3600s);
}

TEST_CASE("ranks in a circle with one that is stopped are not a circle") {
  HangWorld world(HangConfig{.hang_timeout = 60s, .stop_limit = Duration::max()});
  world.put(0, 6, true);
  world.put(1, 5, false);
  world.put(1, 3, true, 7);
  world.put(0, 2, false, 7);
  world.put(2, 0, false, 9);
  world.set(1, ProcessState::stopped);
  world.run(1s);
  CHECK(world.take_log().size() == 1);
  check_quiet(world, 600s);
}

TEST_CASE("a job that is suspended as a whole is not touched") {
  HangWorld world = one_missing();
  world.run(10s);
  for (int rank = 0; rank < 4; ++rank) world.set(rank, ProcessState::stopped);
  world.run(3600s);
  CHECK(world.take_log() == Log{"10.25 warn 0: rank 0-3 are stopped (SIGSTOP, SIGTSTP, or it reads "
                                "the terminal); they are "
                                "replaced after 30 s"});
  for (int rank = 0; rank < 4; ++rank) world.set(rank, ProcessState::running);
  world.run(10s);
  CHECK(world.take_log() == Log{"3610.25 warn 0: rank 0-3 are no longer stopped"});
}

TEST_CASE("while a rank is traced nothing is replaced, and time stands still") {
  for (const int traced : {0, 3}) {
    HangWorld world = one_missing();
    world.run(20s);
    world.set(traced, ProcessState::traced);
    world.run(3600s);
    CHECK(world.take_log() ==
          Log{fmt::format("20.25 warn {0}: rank {0} is traced, by a debugger perhaps; dlaunch "
                          "replaces no worker that hangs meanwhile",
                          traced)});
    world.set(traced, ProcessState::sleeping);
    world.run(9s);
    CHECK(world.take_log() == Log{});
    world.run(40s);
    CHECK(world.take_log().back().starts_with("3660.25 replace 3: "));
  }
}

TEST_CASE("an uninterruptible sleep is named") {
  HangWorld world = one_missing();
  world.set(3, ProcessState::uninterruptible);
  world.run(70s);
  CHECK(world.take_log().back() ==
        "60.25 replace 3: rank 3 has not entered all_reduce #17, where rank 0-2 are waiting (rank "
        "3 is in an uninterruptible sleep, D: a disk or network storage), for 60 s");
}

TEST_CASE("a job that the user stops causes no warning, and the pause does not count") {
  HangWorld world = one_missing();
  world.run(10s);
  world.feed(HangJudge::Suspended{true});
  for (const int rank : {0, 1, 3}) world.set(rank, ProcessState::stopped);  // rank 2 ignores it
  world.run(1000s);
  world.feed(HangJudge::Suspended{false});
  for (const int rank : {0, 1, 3}) world.set(rank, ProcessState::running);
  world.run(29s);
  CHECK(world.take_log().empty());
  // Another program stops one rank: this is reported.
  world.set(3, ProcessState::stopped);
  world.run(1s);
  REQUIRE_FALSE(world.take_log().empty());
}
