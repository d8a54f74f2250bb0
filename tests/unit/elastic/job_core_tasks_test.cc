// JobCore: independent tasks, which are the workers of a plain program with --restart-scope worker.
#include "job_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

JobConfig tasks(int size, int restarts, std::vector<int> nodes = {}) {
  JobConfig config = of(size, restarts);
  config.scope = RestartScope::worker;
  config.nodes = std::move(nodes);
  return config;
}

void lose_task_node(JobWorld& world, int node, const Slots& slots) {
  for (const Slot slot : slots) world.running.erase(slot);
  world.feed(JobCore::NodeLost{node});
}

bool succeeded(const JobWorld& world) {
  return world.finish && world.finish->end == JobEnding::succeeded;
}

}  // namespace

TEST_CASE("a task that has ended well is not done again when another fails") {
  JobWorld world(tasks(3, 2), false);
  world.succeed(0);
  world.fail(1);
  CHECK(world.running == std::map<Slot, int>{{1, 1}, {2, 2}});
  CHECK(world.core.state() == JobState::active);
  CHECK(world.core.waits_for().empty());
  world.succeed(2);
  world.fail(1);
  world.now += 1s;  // after the pause
  world.feed(JobCore::Clock{});
  CHECK(world.running == std::map<Slot, int>{{1, 1}});
  CHECK(world.starts == 5);
  CHECK(world.core.life_of(0) == "done");
  world.succeed(1);
  CHECK(succeeded(world));
}

TEST_CASE("a task that had ended well when it was to be replaced is not done again") {
  JobWorld world(tasks(2, 2), false);
  world.running.erase(0);  // it has ended, and its host has not noticed yet
  world.feed_now(JobCore::Replace{0});
  CHECK(world.core.life_of(0) == "being stopped");
  world.feed(JobCore::Ended{.slot = 0, .well = true});
  CHECK(world.core.life_of(0) == "done");
  world.succeed(1);
  CHECK(succeeded(world));
  CHECK(world.starts == 2);
}

TEST_CASE("all remaining tasks fail at once") {
  JobWorld world(tasks(3, 3), false);
  world.succeed(2);
  world.running.clear();
  world.feed_now(JobCore::Ended{0, false});
  world.feed_now(JobCore::Ended{1, false});
  world.now += 10min;  // after the pause
  world.feed(JobCore::Clock{});
  CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  world.succeed(0);
  world.succeed(1);
  CHECK(succeeded(world));
}

TEST_CASE("a task that fails for good ends the others, because the job needs all tasks") {
  for (const int least : {1, 2}) {
    JobConfig config = tasks(2, 0);
    config.min_size = least;
    JobWorld world(config, false);
    world.fail(0);
    CHECK(world.stopped == Slots{1});
    REQUIRE(world.finish);
    CHECK(world.finish->end == JobEnding::worker_failed);
  }
}

TEST_CASE("with other scopes ended workers come back") {
  JobConfig config = tasks(2, 1);
  config.scope = RestartScope::automatic;
  JobWorld world(config, false);
  world.succeed(0);
  world.fail(1);
  CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
}

TEST_CASE("the workers of an elastic program are no tasks") {
  SUBCASE("they all have linked") {
    JobWorld world(tasks(2, 1), true);
    world.succeed(0);
    world.fail(1);
    CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  }
  SUBCASE("the first one links when another has ended") {
    JobWorld world(tasks(2, 1), false);
    world.succeed(0);
    world.feed(JobCore::Ready{1, 0});
    CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  }
}

TEST_CASE("only unfinished tasks of a lost host are repeated") {
  JobConfig config = tasks(4, 3, {0, 0, 1, 1});
  SUBCASE("all are needed") {}
  SUBCASE("one host is enough") { config.min_size = 2; }
  JobWorld world(config, false);
  world.succeed(2);
  lose_task_node(world, 1, {3});
  CHECK(world.core.size() == 4);
  CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  CHECK(world.core.waits_for() == "rank 3 to have its host back");
}

TEST_CASE("a lost host whose tasks have all ended well is no failure") {
  JobWorld world(tasks(4, 0, {0, 0, 1, 1}), false);
  world.succeed(2);
  world.succeed(3);
  lose_task_node(world, 1, {});
  world.feed(JobCore::NodeBack{1});
  CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  world.succeed(0);
  world.succeed(1);
  CHECK(succeeded(world));
}

TEST_CASE("the job keeps the tasks of a lost host, and a spare may take them") {
  JobConfig config = tasks(2, 3, {0, 1});
  config.min_size = 1;
  SUBCASE("its host comes back") {
    JobWorld world(config, false);
    lose_task_node(world, 1, {1});
    CHECK(world.running == std::map<Slot, int>{{0, 0}});
    world.succeed(0);
    CHECK_FALSE(world.finish);
    world.feed(JobCore::NodeBack{1});
    CHECK(world.running == std::map<Slot, int>{{1, 1}});
    world.succeed(1);
    CHECK(succeeded(world));
  }
  SUBCASE("it does not") {
    JobWorld world(config, false);
    lose_task_node(world, 1, {1});
    world.now += 601s;
    world.feed(JobCore::Clock{});
    REQUIRE(world.finish);
    CHECK(world.finish->end == JobEnding::worker_failed);
  }
  SUBCASE("there is a spare") {
    config.spares = 1;
    config.nodes = {0, 1, 0};
    JobWorld world(config, false);
    lose_task_node(world, 1, {1});
    CHECK(world.running == std::map<Slot, int>{{0, 0}, {2, 1}});
  }
}

TEST_CASE("a task on a draining host stays until it has ended well") {
  JobConfig config = tasks(2, 3, {0, 1});
  config.min_size = 1;
  JobWorld world(config, false);
  world.succeed(0);
  world.feed(JobCore::NodeDrain{1});
  world.fail(1);
  CHECK(world.running == std::map<Slot, int>{{1, 1}});
  world.succeed(1);
  CHECK(succeeded(world));
}

TEST_CASE("the next leader knows which tasks have ended well") {
  const JobConfig config = tasks(4, 3, {0, 0, 1, 1});
  JobWorld first(config, false);
  first.succeed(0);
  first.succeed(2);
  CHECK(first.core.record().done == Slots{0, 2});
  SUBCASE("all hosts are there") {
    JobWorld world(config, first);
    CHECK(world.running == std::map<Slot, int>{{1, 1}, {3, 3}});
    CHECK(world.starts == 0);
  }
  SUBCASE("the leader's is not") {
    JobWorld world(config, first, {0});
    world.feed(JobCore::NodeBack{0});
    CHECK(world.running == std::map<Slot, int>{{1, 1}, {3, 3}});
    world.succeed(1);
    world.succeed(3);
    CHECK(succeeded(world));
  }
  SUBCASE("nothing was left to do") {
    first.succeed(3);
    auto record = first.core.record();
    record.done.push_back(1);
    JobCore core(config);
    core.step(first.now, JobCore::Resume{record, {}});
    CHECK(core.state() == JobState::ended);
  }
}

TEST_CASE("the journal of an elastic program has no finished workers") {
  JobWorld world(tasks(2, 1), true);
  world.succeed(0);
  CHECK(world.core.record().done.empty());
}

TEST_CASE("each task's failure costs a restart, but for those that fail together") {
  JobCore core(tasks(4, 2));
  const auto feed = [&](const JobCore::Event& event) { core.step(kStart, event); };
  feed(JobCore::Start{});
  for (const Slot slot : {0, 1, 2, 3}) feed(JobCore::Spawned{slot});
  feed(JobCore::Ended{0, false});
  feed(JobCore::Ended{1, false});  // before the first one runs again
  CHECK(core.restarts_used() == 1);
  feed(JobCore::Spawned{0});
  feed(JobCore::Spawned{1});
  feed(JobCore::Ended{2, false});
  CHECK(core.restarts_used() == 2);
  core.step(kStart + 1s, JobCore::Clock{});  // after the pause
  core.step(kStart + 1s, JobCore::Spawned{2});
  CHECK(core.state() == JobState::active);
  core.step(kStart + 1s, JobCore::Ended{3, false});
  CHECK(core.state() == JobState::ending);
}

TEST_CASE("only the same failure of the same task ends the job") {
  JobWorld world(tasks(2, 9), false);
  const auto fail = [&](Slot slot) {
    world.now += 20s;
    world.feed(JobCore::Clock{});
    REQUIRE(world.running.erase(slot) == 1);
    world.feed(JobCore::Ended{.slot = slot, .well = false, .signature = 7, .exact = 7});
  };
  fail(0);
  fail(1);
  CHECK_FALSE(world.finish);
  fail(1);
  REQUIRE(world.finish);
  CHECK(world.finish->why.starts_with("the same failure as in round "));
}
