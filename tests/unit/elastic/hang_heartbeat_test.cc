// Ranks that send heartbeats.
#include <string>

#include <doctest/doctest.h>

#include "hang_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// The ranks from `first` to 2 send a heartbeat each second.
void beat_on(HangWorld& world, Duration time, int first = 0) {
  world.keep_on(&HangWorld::beat, first, 2, 1s, time);
}

}  // namespace

TEST_CASE("a rank that sends no more heartbeats, while others do, hangs") {
  HangWorld world;
  beat_on(world, 10s);
  beat_on(world, 80s, 1);
  const std::string what = "rank 0 has sent no heartbeat";
  CHECK(world.take_log() == Log{
                                "39 warn 0: " + what + ", for 30 s now; it is replaced after 60 s",
                                "67 dump 0",
                                "69 replace 0: " + what + ", for 60 s",
                            });
}

TEST_CASE("if no rank sends a heartbeat any more, all hang, and none is blamed for being first") {
  HangWorld world;
  beat_on(world, 10s);
  world.beat(1);
  world.beat(2);
  world.run(80s);
  const std::string what = "no rank has sent a heartbeat";
  CHECK(world.take_log() ==
        Log{
            "40 warn 0: " + what + ", for 30 s now; they are replaced after 60 s",
            "68 dump 0-2",
            "70 replace 0-2: " + what + ", for 60 s",
        });
}

TEST_CASE("a rank that sends no heartbeats is not judged by them") {
  HangWorld world;
  beat_on(world, 10s, 1);
  world.put(0, 0, false);
  beat_on(world, 200s, 1);
  CHECK(world.take_log() == Log{});
}

TEST_CASE("ranks that have neither sent a heartbeat nor entered a collective are idle for ever") {
  HangWorld world;
  world.put_all(3, 0, false);
  check_quiet(world, 500s);
}

TEST_CASE("a heartbeat is motion for ranks that use libdlring") {
  HangWorld world = one_missing();
  for (int i = 0; i < 200; ++i) {
    world.beat(3);
    world.run(1s);
  }
  CHECK(world.take_log() == Log{});
  world.run(70s);
  const Log log = world.take_log();
  REQUIRE(log.size() == 3);
  CHECK(log[2].starts_with("259 replace 3: rank 3 has not entered all_reduce #17"));
}

TEST_CASE("no rank is replaced for heartbeats that a suspended host could not send") {
  HangWorld world;
  beat_on(world, 10s);
  world.now += 1000s;
  beat_on(world, 50s);
  CHECK(world.take_log() == Log{});
  world.set(0, ProcessState::stopped);
  beat_on(world, 20s, 1);
  world.set(0, ProcessState::running);
  beat_on(world, 50s, 1);
  for (const auto& line : world.take_log())
    CHECK(line.find("heartbeat, for 6") == std::string::npos);
}

TEST_CASE("without a time-out dlaunch warns of a rank without heartbeats, but not of all of them") {
  HangWorld world(HangConfig{.warn_after = 20s});
  beat_on(world, 10s);
  beat_on(world, 30s, 1);
  const Log log = world.take_log();
  REQUIRE(log.size() == 1);
  CHECK(log[0].starts_with("29 warn 0: rank 0 has sent no heartbeat, for 20 s now; 'dlaunchctl"));
  beat_on(world, 10s);
  CHECK(world.take_log() == Log{"40.25 warn 0: rank 0 has sent no heartbeat: this is over"});
  check_quiet(world, 200s);
}
