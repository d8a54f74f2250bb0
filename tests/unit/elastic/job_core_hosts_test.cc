// JobCore: hosts that come late, leave again, or are lost before their workers start.
#include <signal.h>

#include "job_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// One worker on each of up to `most` hosts; the job begins with so many.
JobConfig one_each(int begins, int least, int most) {
  JobConfig config = of(begins, 5);
  config.min_size = least;
  config.max_size = most;
  for (int node = 0; node < most; ++node) config.nodes.push_back(node);
  return config;
}

void lose(JobWorld& world, int node) {
  world.running.erase(node);
  world.left.erase(node);
  world.feed(JobCore::NodeLost{node});
}

}  // namespace

TEST_CASE("late hosts that go again do not keep the others out") {
  SUBCASE("of a plain program") {
    JobWorld world(one_each(1, 1, 3), false, {1, 2});
    for (const int node : {1, 2}) world.feed(JobCore::NodeBack{node});
    SUBCASE("lost") { world.feed(JobCore::NodeLost{2}); }
    SUBCASE("to be lost") { world.feed(JobCore::NodeDrain{2}); }
    CHECK(world.core.target_size() == 2);
    world.fail(0);
    CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  }
  SUBCASE("of an elastic one, which have not asked yet") {
    JobWorld world(one_each(1, 1, 3), true, {1, 2});
    world.mute = {1, 2};
    for (const int node : {1, 2}) world.feed(JobCore::NodeBack{node});
    lose(world, 2);
    world.feed(JobCore::Ready{1, 0});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 1});
  }
}

TEST_CASE("one late host takes a lost one's place, and the other comes in, too") {
  JobWorld world(one_each(2, 1, 4), false, {2, 3});
  for (const int node : {2, 3}) world.feed(JobCore::NodeBack{node});
  lose(world, 1);
  CHECK(world.running == std::map<Slot, int>{{0, 0}, {2, 1}, {3, 2}});
}

TEST_CASE("a job continues without a host that is lost before its worker starts") {
  SUBCASE("its peers fail first, as they do when they miss it") {
    JobWorld world(one_each(2, 1, 2), false);
    world.stubborn = {1};  // it cannot hear
    world.fail(0);
    lose(world, 1);
    CHECK(world.running == std::map<Slot, int>{{0, 0}});
    CHECK(world.core.restarts_used() == 1);
  }
  SUBCASE("it has come late") {
    JobWorld world(one_each(2, 1, 3), false, {2});
    world.feed(JobCore::NodeBack{2});
    world.stubborn = {1};  // takes its time
    world.fail(0);
    CHECK(world.core.size() == 3);
    world.feed(JobCore::NodeLost{2});
    world.running.erase(1);
    world.feed(JobCore::Ended{1, false});
    CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  }
  SUBCASE("of an elastic program") {
    JobWorld world(one_each(3, 1, 3), true);
    world.running.erase(0);
    world.left.erase(0);
    world.feed_now(JobCore::Ended{0, false});
    world.feed_now(JobCore::NodeLost{0});
    for (const Slot slot : {1, 2}) world.rejoin(slot);
    CHECK(world.roster == Slots{1, 2});
    CHECK(world.announced == std::vector<int>{1, 3});  // the number of another roster is burnt
  }
}

TEST_CASE("a new host takes the place of an awaited one") {
  for (const bool elastic : {false, true}) {
    JobWorld world(one_each(2, 2, 3), elastic, {2});
    lose(world, 1);
    if (elastic) world.rejoin(0);
    CHECK(world.core.waits_for().find("to have its host back") != std::string::npos);
    world.feed(JobCore::NodeBack{2});
    CHECK(world.announced == (elastic ? std::vector<int>{1, 3} : std::vector<int>{}));
    if (elastic) world.rejoin_all();
    CHECK(world.core.size() == 2);
    CHECK(world.running.size() == 2);
    CHECK(world.core.state() == JobState::active);
    CHECK(world.core.rank_of(2) == 1);
    world.feed(JobCore::NodeBack{1});  // and has another one when it is back itself
    if (elastic) world.rejoin_all();
    CHECK(world.core.target_size() == 3);
    CHECK(world.core.size() == (elastic ? 3 : 2));
  }
}

TEST_CASE("a joining host comes in, although another host is lost meanwhile") {
  for (const int restarts : {0, 5}) {
    JobConfig config = one_each(3, 1, 4);
    config.restarts.limit.restarts = restarts;
    JobWorld world(config, true, {3});
    world.mute = {3};
    world.feed(JobCore::NodeBack{3});
    lose(world, 0);
    world.rejoin_all();
    CHECK(world.roster == Slots{1, 2});
    world.feed(JobCore::Ready{3, 0});
    world.rejoin_all();
    CHECK(world.roster == Slots{1, 2, 3});
  }
}

TEST_CASE("a joining host comes in, although a worker fails that is not replaced") {
  JobConfig config = one_each(3, 1, 4);
  config.restarts.limit.restarts = 0;
  JobWorld world(config, true, {3});
  world.mute = {3};
  world.feed(JobCore::NodeBack{3});
  world.fail(0);
  world.rejoin_all();
  CHECK(world.roster == Slots{1, 2});
  world.feed(JobCore::Ready{3, 0});
  world.rejoin_all();
  CHECK(world.roster == Slots{1, 2, 3});
}

TEST_CASE("a host that comes back does not exceed the target size") {
  JobConfig config = of(2, 5);
  config.max_size = 4;
  config.nodes = {0, 0, 1, 1};
  JobWorld world(config);
  world.feed(JobCore::NodeLost{1});
  world.feed(JobCore::NodeBack{1});
  CHECK(world.core.target_size() == 2);
  CHECK(world.running.size() == 2);
}

TEST_CASE("a spare comes back with its host, without a new round") {
  JobConfig config = of(1, 5, 1);
  config.nodes = {0, 1};
  JobWorld world(config);
  SUBCASE("that was lost") {}
  SUBCASE("that it was to leave") {
    world.feed(JobCore::NodeDrain{1});
    CHECK_FALSE(world.running.contains(1));
  }
  lose(world, 1);
  CHECK_FALSE(world.core.deadline());  // no member waits for it
  world.feed(JobCore::NodeBack{1});
  CHECK(world.running.contains(1));
  CHECK(world.fences.empty());
}

TEST_CASE("a member that a smaller size leaves out is needed until the next commit, on any host") {
  JobConfig config = one_each(3, 1, 3);
  JobWorld world(config);
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{2});
  SUBCASE("also on one that is to be lost") {
    world.feed(JobCore::NodeDrain{2});
    CHECK(world.stopped.empty());
    world.rejoin_all();
    CHECK(world.stopped == Slots{2});
  }
  SUBCASE("and missed where it is lost with that") {
    lose(world, 2);
    CHECK(world.losts == std::vector<int>{-1, 2});
  }
  SUBCASE("and then is not started again") {
    world.stubborn = {2};
    world.rejoin_all();
    lose(world, 2);
  }
  world.rejoin_all();
  world.feed(JobCore::NodeBack{2});
  CHECK(world.roster == Slots{0, 1});
  CHECK(world.starts == 3);
  CHECK(world.core.restarts_used() == 0);
}

TEST_CASE("a host that is lost while its member is leaving is missed by those that wait for it") {
  JobWorld world(one_each(3, 1, 3));
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::NodeDrain{0});
  lose(world, 0);
  CHECK(world.losts == std::vector<int>{-1, 0});
  CHECK(world.core.restarts_used() == 0);
}

TEST_CASE("a host that comes back does not hurry members that leave at their next commit") {
  JobWorld world(one_each(4, 1, 5));
  world.feed(JobCore::NodeLost{4});
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::Resize{2});
  world.rejoin(0);
  world.feed(JobCore::NodeBack{4});
  CHECK(world.fences == std::vector<int>{2});
  CHECK(world.stopped.empty());
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1});
  CHECK(world.announced == std::vector<int>{1, 2});
}

TEST_CASE("a round that is given up because of a lost host counts once") {
  JobWorld world(one_each(3, 2, 3));
  for (const Slot slot : {0, 1}) world.feed(JobCore::Ready{slot, 1, 0, "it stands still"});
  lose(world, 2);
  CHECK(world.roster == Slots{0, 1});
  CHECK(world.core.restarts_used() == 1);
}

TEST_CASE("a job with a finished member waits for a lost host, though it may shrink") {
  JobWorld world(one_each(3, 1, 3));
  world.succeed(0);
  lose(world, 1);
  CHECK(world.core.size() == 3);
  world.feed(JobCore::NodeBack{1});
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2});
}

TEST_CASE("each host has its time to come back, whichever rank it had") {
  for (const int node : {0, 1}) {
    JobWorld world(one_each(2, 2, 2));
    lose(world, node);
    world.now += 600s;
    world.feed(JobCore::Clock{});
    REQUIRE(world.finish);
    CHECK(world.finish->end == JobEnding::worker_failed);
    CHECK(world.signals == std::set<int>{SIGTERM});
  }
}

TEST_CASE("the next leader knows how much time is left, and who is leaving") {
  JobConfig config = one_each(3, 1, 3);
  config.timeout = 30s;
  JobWorld first(config);
  first.now += 10s;
  first.feed(JobCore::NodeDrain{0});
  CHECK(first.core.record().time_left == 20s);
  CHECK(first.core.record().leaving == std::map<Slot, int>{{0, 0}});
  JobWorld world(config, first);
  CHECK(world.stopped.empty());
  CHECK(world.core.deadline() == kStart + 30s);
  world.now += 21s;
  CHECK(world.core.step(world.now, JobCore::Progress{1, 1}).empty());
  CHECK(world.core.record().time_left == 0s);
}

TEST_CASE("the state of each process, in words") {
  JobConfig config = of(2, 1, 1);
  config.max_size = 3;
  JobWorld world(config);
  CHECK(world.core.life_of(0) == "running");
  CHECK(world.core.life_of(2) == "waiting for a place");
  CHECK(world.core.life_of(3) == "absent");
  world.succeed(0);
  CHECK(world.core.life_of(0) == "done");

  JobWorld hosts(one_each(2, 2, 2));
  lose(hosts, 1);
  hosts.rejoin(0);
  CHECK(hosts.core.life_of(0) == "waiting for its round");
  CHECK(hosts.core.life_of(1) == "waiting for its host");

  JobWorld plain(of(2, 1, 1), false);
  CHECK(plain.core.life_of(2) == "not started yet");
  plain.stubborn = {0};
  plain.fail(1);
  CHECK(plain.core.life_of(0) == "being stopped");
  CHECK(plain.core.life_of(1) == "to be started");
  CHECK(plain.core.waits_for() == "rank 0 to end, rank 1 to be started again");
}

TEST_CASE("one of several hosts may use half of the restarts; then the job continues without it") {
  JobConfig config = one_each(2, 1, 2);
  config.restarts.limit = {.restarts = 8, .window = 1h};
  JobWorld world(config);
  for (int losses = 1; losses <= 4; ++losses) {
    lose(world, 1);
    REQUIRE_FALSE(world.finish);
    world.feed(JobCore::NodeBack{1});
    world.now += 61s;
    world.feed(JobCore::Clock{});
    world.rejoin_all();
  }
  lose(world, 1);
  REQUIRE_FALSE(world.finish);
  CHECK(world.core.size() == 1);
  CHECK(world.core.restarts_used() == 4);
}

TEST_CASE("a host's share of the restarts never ends a job that needs the host") {
  JobConfig config = one_each(2, 2, 2);
  config.restarts.limit = {.restarts = 8, .window = 1h};
  JobWorld world(config);
  for (int losses = 1; losses <= 8; ++losses) {
    lose(world, 1);
    REQUIRE_FALSE(world.finish);
    world.feed(JobCore::NodeBack{1});
    world.now += 1s;
    world.feed(JobCore::Clock{});
    world.rejoin_all();
  }
  lose(world, 1);
  REQUIRE(world.finish);
  CHECK(world.finish->why.starts_with("the budget of 8 restarts within 1h"));
  CHECK(world.finish->ended_by == "--max-restarts");
}

TEST_CASE("a member that a draining host lacks comes back elsewhere, or not at all") {
  for (const bool late : {false, true}) {  // the order to drain comes after the successor's start
    CAPTURE(late);
    JobWorld world(one_each(3, 2, 3));
    world.mute = {2};
    world.running.erase(2);
    world.left.erase(2);
    world.feed_now(JobCore::Ended{.slot = 2, .well = false, .kind = FailureKind::corrupt});
    if (late) {
      world.feed(JobCore::Clock{});
      REQUIRE(world.running.contains(2));
    }
    world.feed(JobCore::NodeDrain{2});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 1});
    CHECK_FALSE(world.running.contains(2));
    CHECK(world.core.nobody_on(2));
    CHECK(world.core.target_size() == 2);
    world.mute = {};
    world.feed(JobCore::NodeBack{2});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 1, 2});
  }
}

TEST_CASE("a spare takes the place of a member that a draining host lacks") {
  JobConfig config = one_each(3, 3, 4);
  config.max_size = 3;
  config.spares = 1;
  JobWorld world(config);
  REQUIRE(world.roster == Slots{0, 1, 2});
  world.running.erase(1);
  world.left.erase(1);
  world.mute = {1};
  SUBCASE("which is drained after its failure") {
    world.feed_now(JobCore::Ended{.slot = 1, .well = false, .kind = FailureKind::corrupt});
    world.feed(JobCore::NodeDrain{1});
  }
  SUBCASE("which was drained before") {
    world.feed(JobCore::NodeDrain{1});
    world.feed(JobCore::Ended{.slot = 1, .well = false, .kind = FailureKind::corrupt});
  }
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 3, 2});
  CHECK(world.core.nobody_on(1));
}

TEST_CASE("a process that is being stopped gets no second signal because its host is drained") {
  JobConfig config = one_each(3, 3, 4);
  config.max_size = 3;
  config.spares = 1;
  JobWorld world(config);
  // The spare takes its place, and it is to be a spare once it has ended.
  REQUIRE_FALSE(world.core.step(world.now, JobCore::Replace{1}).empty());
  REQUIRE(world.core.rank_of(1) == -1);
  for (const auto& action : world.core.step(world.now, JobCore::NodeDrain{1})) {
    CHECK_FALSE(std::holds_alternative<JobCore::StopWorkers>(action));
  }
  world.core.step(world.now, JobCore::Ended{.slot = 1, .well = false});
  CHECK(world.core.nobody_on(1));
}

TEST_CASE("a job that needs a draining host starts a lost member there again") {
  JobWorld world(one_each(3, 3, 3));
  world.feed(JobCore::NodeDrain{2});
  world.fail(2);
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2});
}

TEST_CASE("a member that fails on a draining host does not start there again") {
  JobWorld world(one_each(3, 2, 3));
  world.feed(JobCore::NodeDrain{2});
  world.fail(2);
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1});
  CHECK(world.core.nobody_on(2));
}
