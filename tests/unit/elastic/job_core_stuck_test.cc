// JobCore: processes that SIGKILL does not end in time.
#include <signal.h>

#include <doctest/doctest.h>

#include "tests/unit/elastic/job_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr Duration kLonger = kStuckPatience - kKillPatience;

// A job whose rank 1 does not end when rank 0 has failed, and for which its host has reported that.
struct StuckWorld : JobWorld {
  explicit StuckWorld(const JobConfig& config, bool elastic = false) : JobWorld(config, elastic) {
    frozen = {1};
    elastic ? feed(JobCore::Replace{1}) : fail(0);
    report();
  }
  void report() {
    now += kKillPatience;
    feed(JobCore::Stuck{.slot = 1});
  }
  void wait(Duration time) {
    now += time;
    feed(JobCore::Clock{});
  }
};

}  // namespace

TEST_CASE("stuck: a job that goes on waits for a process that takes longer to end") {
  StuckWorld world(of(2, 1));
  CHECK(world.awaited == Slots{1});
  CHECK(world.core.life_of(1) == "does not end");
  CHECK(world.core.waits_for() == "rank 0 to be started again, rank 1 to end");
  CHECK(world.core.deadline() == world.now + kLonger);
  world.wait(kLonger - 1s);
  CHECK(world.starts == 2);
  CHECK_FALSE(world.finish);
  world.fail(1);
  CHECK(world.starts == 4);
  CHECK(world.awaited == Slots{1});
  CHECK(world.core.state() == JobState::active);
  CHECK_FALSE(world.core.deadline());
  world.succeed(0);
  world.succeed(1);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::succeeded);
  CHECK(world.finish->all_reaped);
}

TEST_CASE("stuck: a job that cannot go on without the place ends, and no limit is to blame") {
  StuckWorld world(of(2, 3));
  world.wait(kLonger - 1s);
  CHECK_FALSE(world.finish);
  world.wait(1s);
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);
  CHECK(world.finish->why == "dlaunch cannot end a worker, so no process can take its place");
  CHECK(world.finish->ended_by.empty());
  CHECK_FALSE(world.finish->all_reaped);
}

TEST_CASE("stuck: a job that ends does not wait longer") {
  JobWorld interrupted(of(2, 3));
  interrupted.frozen = {1};
  interrupted.feed(JobCore::Signal{SIGTERM});
  CHECK_FALSE(interrupted.finish);
  interrupted.feed(JobCore::Stuck{.slot = 1});
  REQUIRE(interrupted.finish);
  CHECK_FALSE(interrupted.finish->all_reaped);
  CHECK(interrupted.finish->end == JobEnding::interrupted);
  CHECK(interrupted.awaited.empty());
  JobWorld failed(of(2));
  failed.frozen = {1};
  failed.fail(0);
  CHECK_FALSE(failed.finish);
  failed.feed(JobCore::Stuck{.slot = 1});
  REQUIRE(failed.finish);
  CHECK(failed.finish->end == JobEnding::worker_failed);
  CHECK(failed.awaited.empty());
}

TEST_CASE("stuck: a job that is to end while it waits ends at once") {
  StuckWorld world(of(2, 1));
  world.now += 1s;
  world.feed(JobCore::Signal{SIGTERM});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::interrupted);
  CHECK_FALSE(world.finish->all_reaped);
}

TEST_CASE("stuck: at last a job that may be smaller goes on without the place") {
  JobConfig config = of(3, 2);
  config.min_size = 2;
  StuckWorld world(config, true);
  world.rejoin(0), world.rejoin(2);
  CHECK(world.announced == std::vector<int>{1});
  world.wait(kLonger);
  CHECK_FALSE(world.finish);
  CHECK(world.roster == Slots{0, 2});
  CHECK(world.core.restarts_used() == 1);
  // Its slot is not used again until it has ended.
  world.feed(JobCore::Resize{3});
  CHECK(world.starts == 3);
  world.fail(1);
  world.feed(JobCore::Resize{3});
  CHECK(world.starts == 4);
}

TEST_CASE("stuck: a job whose spare has the rank does not wait, and loses no more than a spare") {
  StuckWorld world(of(2, 2, 1), true);
  world.rejoin(0);
  CHECK(world.roster == Slots{0, 2});
  CHECK(world.core.state() == JobState::active);
  CHECK(world.awaited == Slots{1});  // the next spare
  world.wait(kLonger);
  CHECK(world.core.state() == JobState::active);
  world.fail(1);
  CHECK(world.starts == 3);
  CHECK_FALSE(world.finish);
}

TEST_CASE("stuck: a host that is lost takes the process along") {
  JobConfig config = one_on_each_of(2, 2, 2);
  config.join_timeout = 100s;
  StuckWorld world(config);
  world.running.erase(1);
  world.feed(JobCore::NodeLost{1});
  world.wait(kLonger);
  CHECK_FALSE(world.finish);
  world.feed(JobCore::NodeBack{1});
  CHECK(world.starts == 4);
}

TEST_CASE("stuck: the next leader learns it, and waits, too") {
  JobConfig config = of(2, 2);
  JobWorld first(config);
  first.frozen = {1};
  first.feed(JobCore::Replace{1});
  JobWorld second(config, first);
  second.feed(JobCore::Stuck{.slot = 1});
  second.rejoin(0);
  CHECK(second.awaited == Slots{1});
  CHECK(second.core.deadline() == second.now + kLonger);
  second.now += 20s;
  second.fail(1);
  CHECK(second.roster == Slots{0, 1});
  CHECK(second.core.state() == JobState::active);
}

TEST_CASE("stuck: members that are in a round with a leaving member learn of its loss") {
  JobWorld world(of(3, 1));
  world.frozen = {2};
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{2});
  world.feed(JobCore::Replace{2});
  CHECK(world.losts == std::vector<int>{-1});
  world.now += kKillPatience;
  world.feed(JobCore::Stuck{.slot = 2});
  CHECK(world.losts == std::vector<int>{-1, 2});
  world.rejoin(0), world.rejoin(1);
  CHECK(world.roster == Slots{0, 1});
  CHECK(world.awaited.empty());
}

TEST_CASE("stuck: a process that an earlier leader gave up costs the next one no restart") {
  JobConfig config = of(3, 2);
  config.min_size = 2;
  StuckWorld first(config);
  first.wait(kLonger);
  REQUIRE(first.core.state() == JobState::active);
  REQUIRE(first.core.restarts_used() == 1);
  JobWorld second(config, first);
  second.feed(JobCore::Stuck{.slot = 1});
  CHECK(second.core.restarts_used() == 1);
  CHECK(second.awaited.empty());
  CHECK(second.core.state() == JobState::active);
}
