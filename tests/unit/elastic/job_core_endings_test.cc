// JobCore: how a job ends, and with which signals.
#include <signal.h>

#include <doctest/doctest.h>

#include "tests/unit/elastic/job_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("the user's signals end the job, the second one at once") {
  JobWorld world(of(2, 3));
  world.stubborn = {0, 1};
  world.feed(JobCore::Signal{SIGINT});
  CHECK_FALSE(world.finish);
  world.feed(JobCore::Signal{SIGINT});  // timeout(1) sends each twice
  CHECK_FALSE(world.finish);
  world.now += 1s;
  world.feed(JobCore::Signal{SIGHUP});
  CHECK_FALSE(world.finish);
  world.feed(JobCore::Signal{SIGINT});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::interrupted);
  CHECK(world.finish->signal == SIGINT);
}

TEST_CASE("a signal ends a job that has not started") {
  JobCore core(of(2, 3));
  const auto actions = core.step({}, JobCore::Signal{SIGTERM});
  REQUIRE(actions.size() == 1);
  const auto& finish = std::get<JobCore::Finish>(actions.front());
  CHECK(finish.end == JobEnding::interrupted);
  CHECK(finish.signal == SIGTERM);
  CHECK(core.state() == JobState::ended);
}

TEST_CASE("signals that come together count as one, whichever they are") {
  for (const auto& [first, second] :
       {std::pair(SIGTERM, SIGHUP), {SIGHUP, SIGTERM}, {SIGTERM, SIGINT}}) {
    JobWorld world(of(2, 3));
    world.stubborn = {0, 1};
    world.feed(JobCore::Signal{first});
    world.feed(JobCore::Signal{second});
    CHECK_FALSE(world.finish);
  }
  // A terminal that was closed is no haste; who is asked twice after that is in haste.
  JobWorld closed(of(2, 3));
  closed.stubborn = {0, 1};
  closed.feed(JobCore::Signal{SIGHUP});
  closed.now += 1s;
  closed.feed(JobCore::Signal{SIGTERM});
  CHECK(closed.signals == std::set<int>{SIGHUP, SIGTERM});
  CHECK_FALSE(closed.finish);
  closed.now += 1s;
  closed.feed(JobCore::Signal{SIGTERM});
  REQUIRE(closed.finish);
  CHECK(closed.finish->signal == SIGTERM);
}

TEST_CASE("the job's time-out ends it") {
  JobConfig config = of(2);
  config.timeout = 30s;
  JobWorld world(config);
  CHECK(*world.core.deadline() == kStart + 30s);
  world.now += 30s;
  world.feed(JobCore::Clock{});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::timed_out);
}

TEST_CASE("the time for which the user has stopped the job does not count for --timeout") {
  JobConfig config = of(2);
  config.timeout = 30s;
  JobWorld world(config);
  world.now += 20s;
  world.feed(JobCore::Signal{SIGTSTP});
  CHECK_FALSE(world.core.deadline());
  CHECK(world.core.record().time_left == 10s);
  world.now += 1h;
  world.feed(JobCore::Clock{});
  CHECK_FALSE(world.finish);
  world.feed(JobCore::Signal{SIGTSTP});  // once more changes nothing
  CHECK(world.core.record().time_left == 10s);
  world.feed(JobCore::Signal{SIGCONT});
  CHECK(*world.core.deadline() == world.now + 10s);
  world.feed(JobCore::Signal{SIGCONT});
  CHECK(*world.core.deadline() == world.now + 10s);
  world.now += 10s;
  world.feed(JobCore::Clock{});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::timed_out);
}

TEST_CASE("workers get SIGTERM first; only a worker that hangs is killed at once") {
  const std::set<int> asked = {SIGTERM};
  JobWorld failed(of(3), false);
  failed.fail(1);
  CHECK(failed.signals == asked);
  JobWorld restarted(of(3, 1), false);
  restarted.fail(1);
  CHECK(restarted.signals == asked);
  JobWorld spare(of(2, 1, 1));
  for (const Slot slot : {0, 1}) spare.succeed(slot);
  REQUIRE(spare.finish);
  CHECK(spare.signals == asked);
  JobConfig config = of(3);
  config.min_size = 1;
  config.timeout = 30s;
  JobWorld smaller(config);
  smaller.feed(JobCore::Progress{0, 1});
  smaller.feed(JobCore::Resize{2});
  smaller.rejoin_all();
  CHECK(smaller.signals == asked);
  smaller.now += 30s;
  smaller.feed(JobCore::Clock{});
  REQUIRE(smaller.finish);
  CHECK(smaller.signals == asked);
  JobWorld finished(of(2));
  finished.succeed(0);
  finished.rejoin(1);
  CHECK(finished.signals == asked);
  JobWorld unstartable(of(2), false);
  unstartable.running.erase(1);
  unstartable.feed(JobCore::SpawnFailed{1});
  CHECK(unstartable.signals == asked);
  JobConfig hosts = of(2);
  hosts.nodes = {0, 1};
  JobWorld lost(hosts);
  lost.feed(JobCore::NodeLost{1});
  REQUIRE(lost.finish);
  CHECK(lost.signals == asked);
  JobWorld vain(of(1), true);
  vain.feed(JobCore::Ready{0, 1, 0, "it stands still"});
  REQUIRE(vain.finish);
  CHECK(vain.signals == asked);
  JobWorld hangs(of(3, 1));
  hangs.feed(JobCore::Replace{1});
  CHECK(hangs.signals == std::set<int>{SIGKILL});
}

TEST_CASE("a job that ends, ends for the first reason") {
  JobWorld failed(of(2));
  failed.stubborn = {0};
  failed.fail(1);
  failed.feed(JobCore::Signal{SIGINT});
  failed.now += 1s;
  failed.feed(JobCore::Signal{SIGINT});
  REQUIRE(failed.finish);
  CHECK(failed.finish->end == JobEnding::worker_failed);
  JobWorld stopped(of(2));
  stopped.stubborn = {0, 1};
  stopped.feed(JobCore::Signal{SIGINT});
  for (const Slot slot : {0, 1}) stopped.feed(JobCore::SpawnFailed{slot});
  REQUIRE(stopped.finish);
  CHECK(stopped.finish->end == JobEnding::interrupted);
}

TEST_CASE("a program that cannot be started ends the job") {
  JobWorld world(of(2, 3));
  world.running.erase(1);
  world.feed(JobCore::SpawnFailed{1});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::spawn_failed);
}

namespace {

constexpr std::uint64_t kPeerLost = 1;

// Rank 1 ends because it has lost rank 0, whose own end is heard of later, as that of another host.
void fail_in_turn(JobWorld& world, std::uint64_t cause, int code = 1) {
  world.now += 20s;
  world.feed(JobCore::Clock{});
  world.stubborn = {0};
  world.running.erase(1);
  world.feed(JobCore::Ended{
      .slot = 1, .well = false, .consequence = true, .signature = kPeerLost, .exact = kPeerLost});
  world.stubborn = {};
  world.running.erase(0);
  world.feed(JobCore::Ended{.slot = 0,
                            .well = false,
                            .code = code,
                            .signature = cause,
                            .exact = cause,
                            .by_itself = true});
}

}  // namespace

TEST_CASE("the first failure decides, whichever is reported first") {
  for (const bool elastic : {false, true}) {
    CAPTURE(elastic);
    JobConfig config = of(2, 9);
    config.restarts.final_exit_codes = {7};
    JobWorld world(config, elastic);
    SUBCASE("other causes with the same consequences") {
      for (std::uint64_t cause = 2; cause <= 4; ++cause) fail_in_turn(world, cause);
      CHECK_FALSE(world.finish);
      CHECK(world.core.restarts_used() == 3);
    }
    SUBCASE("the same cause twice") {
      fail_in_turn(world, 2);
      CHECK_FALSE(world.finish);
      fail_in_turn(world, 2);
      REQUIRE(world.finish);
      CHECK(
          world.finish->why ==
          "the same failure as in round 1, also within a minute of the start: it would come again "
          "(--same-failure-limit 2; with off the job goes on)");
      CHECK(world.finish->ended_by == "--same-failure-limit");
    }
    SUBCASE("a code that means: no restart") {
      fail_in_turn(world, 2, 7);
      REQUIRE(world.finish);
      CHECK(world.finish->why == "exit code 7 is one of --no-restart-codes");
      CHECK(world.finish->ended_by == "--no-restart-codes");
    }
  }
}

TEST_CASE("the exit code of a worker that dlaunch stops does not count") {
  JobConfig config = of(2, 9);
  config.restarts.final_exit_codes = {7};
  JobWorld world(config, false);
  world.stubborn = {0};
  world.fail(1);
  world.running.erase(0);
  world.feed(JobCore::Ended{.slot = 0, .well = false, .code = 7, .signature = 2});
  CHECK_FALSE(world.finish);
  CHECK(world.running.size() == 2);
}

TEST_CASE("ranks that serve are stopped once the others have ended well") {
  JobConfig config = of(3);
  config.servers = {1};
  JobWorld world(config, false);
  world.succeed(0);
  CHECK_FALSE(world.finish);
  world.succeed(2);
  CHECK(world.stopped == Slots{1});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::succeeded);
}

TEST_CASE("a rank that serves and fails before the others are done fails the job") {
  JobConfig config = of(3);
  config.servers = {1};
  JobWorld world(config, false);
  world.succeed(0);
  world.fail(1);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);

  JobWorld early(config, false);
  early.succeed(1);  // it may end by itself, too
  CHECK_FALSE(early.finish);
  early.succeed(0);
  early.succeed(2);
  REQUIRE(early.finish);
  CHECK(early.finish->end == JobEnding::succeeded);
}

TEST_CASE("with restarts, ended workers come back with a failed server") {
  JobConfig config = of(3, 1);
  config.servers = {1};
  JobWorld world(config, false);
  world.succeed(0);
  world.fail(1);
  CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}, {2, 2}});
  world.succeed(0);
  world.succeed(2);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::succeeded);
}
