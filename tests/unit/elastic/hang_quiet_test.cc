// Ranks without libdlring and without heartbeats: their output and their CPU time are watched.
#include <string>

#include <doctest/doctest.h>

#include "hang_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// Ranks `first` to 3 are active.
void act_on(HangWorld& world, Duration time, int first = 0) {
  world.keep_on(&HangWorld::act, first, 3, 250ms, time);
}

}  // namespace

TEST_CASE("ranks that all compute, or loop, never hang") {
  HangWorld world;
  act_on(world, 1000s);
  CHECK(world.take_log() == Log{});
}

TEST_CASE("if all ranks are quiet the job hangs") {
  HangWorld world;
  act_on(world, 10s);
  world.run(100s);
  const std::string what = "no rank has written output or used CPU time";
  CHECK(world.take_log() ==
        Log{
            "39.75 warn 0: " + what + ", for 30 s now; they are replaced after 60 s",
            "67.75 dump 0-3",
            "69.75 replace 0-3: " + what + ", for 60 s",
        });
}

TEST_CASE("one rank sleeps for good, and the others spin in a collective: the stacks are asked") {
  HangWorld world;
  act_on(world, 10s);
  act_on(world, 170s, 1);
  const std::string what = "rank 0 has neither written output nor used CPU time";
  CHECK(world.take_log() == Log{
                                "54.75 check 0, busy 1-3: " + what + ", for 45 s",
                                "69.75 check 0, busy 1-3: " + what + ", for 60 s",
                                "114.75 check 0, busy 1-3: " + what + ", for 105 s",
                                "129.75 check 0, busy 1-3: " + what + ", for 120 s",
                                "174.75 check 0, busy 1-3: " + what + ", for 165 s",
                            });
}

TEST_CASE(
    "one rank computes while the others wait: nothing is warned of, and the stacks are asked") {
  HangWorld world;
  act_on(world, 10s);
  act_on(world, 70s, 3);
  const Log log = world.take_log();
  REQUIRE(log.size() == 2);
  CHECK(log[1].starts_with("69.75 check 0-2, busy 3: rank 0-2 have neither written"));
  act_on(world, 40s);
  CHECK(world.take_log() == Log{});
}

TEST_CASE("waits that are shorter than the limit are no hang, whichever ranks wait") {
  HangWorld world;
  for (int i = 0; i < 20; ++i) {
    act_on(world, 10s);
    act_on(world, 20s, 1);
    world.run(20s);
  }
  CHECK(world.take_log() == Log{});
}

TEST_CASE("without a time-out quiet ranks are normal") {
  HangWorld world(HangConfig{.warn_after = 20s});
  act_on(world, 10s);
  act_on(world, 100s, 2);
  check_quiet(world, 200s);
}

TEST_CASE("quiet is no sign where a rank has entered a collective of libdlring") {
  HangWorld world = one_missing();
  world.act(3);
  world.run(70s);
  const Log log = world.take_log();
  REQUIRE(log.size() == 3);
  CHECK(log[2].starts_with("60.25 replace 3: rank 3 has not entered all_reduce #17"));
}
