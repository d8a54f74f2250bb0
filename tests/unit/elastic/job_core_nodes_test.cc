// JobCore on several nodes: nodes, also the leader's, are lost and come back.
#include <signal.h>

#include <doctest/doctest.h>

#include "tests/unit/elastic/job_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// So many workers on each of two nodes.
JobConfig on_two_nodes(int each, int restarts, int min_size) {
  JobConfig config = of(2 * each, restarts);
  config.min_size = min_size;
  for (Slot slot = 0; slot < config.size; ++slot) config.nodes.push_back(slot / each);
  return config;
}

// All that runs there is gone, and nobody tells.
void lose_node(JobWorld& world, int node, const JobConfig& config) {
  for (Slot slot = 0; slot < JobCore::slots(config); ++slot) {
    if (config.nodes[static_cast<std::size_t>(slot)] != node) continue;
    world.running.erase(slot);
    world.left.erase(slot);
  }
  world.feed(JobCore::NodeLost{node});
}

}  // namespace

TEST_CASE("a lost node is waited for, and its ranks come back with it") {
  const auto config = on_two_nodes(2, 1, 4);
  JobWorld world(config);
  lose_node(world, 1, config);
  world.rejoin_all();
  CHECK(world.announced == std::vector<int>{1});
  CHECK(world.losts == std::vector<int>{2});
  CHECK(world.core.waits_for() == "rank 2 to have its host back, rank 3 to have its host back");
  CHECK(world.core.deadline() == kStart + 600s);
  CHECK(world.starts == 4);
  world.feed(JobCore::NodeBack{1});
  CHECK(world.starts == 6);
  CHECK(world.roster == Slots{0, 1, 2, 3});
  CHECK(world.announced == std::vector<int>{1, 2});
  CHECK(world.core.restarts_used() == 1);
  CHECK(world.stopped.empty());
}

TEST_CASE("a node that does not come back ends the job") {
  const auto config = on_two_nodes(2, 5, 4);
  JobWorld world(config);
  lose_node(world, 0, config);
  world.rejoin_all();
  world.now += 600s;
  world.feed(JobCore::Clock{});
  REQUIRE(world.finish);
  CHECK(world.finish->end == JobEnding::worker_failed);
  CHECK(world.finish->why.find("did not come back") != std::string::npos);
}

TEST_CASE("ranks that have ended well are not on their node any more") {
  JobWorld world(on_two_nodes(2, 0, 4), false);
  CHECK(world.core.ranks_on(1) == std::vector<int>{2, 3});
  world.succeed(2);
  CHECK(world.core.ranks_on(1) == std::vector<int>{3});
  world.succeed(3);
  CHECK(world.core.ranks_on(1).empty());
}

TEST_CASE("a job that may shrink goes on without the lost node, and grows when it is back") {
  for (const int restarts : {0, 3}) {
    const auto config = on_two_nodes(2, restarts, 1);
    JobWorld world(config);
    lose_node(world, 0, config);
    world.rejoin_all();
    CHECK(world.roster == Slots{2, 3});
    CHECK(world.announced == std::vector<int>{1, 2});
    world.feed(JobCore::NodeBack{0});
    world.rejoin_all();
    CHECK(world.roster == Slots{2, 3, 0, 1});
    CHECK(world.core.size() == 4);
    for (const Slot slot : world.core_members()) world.succeed(slot);
    CHECK(world.finish->end == JobEnding::succeeded);
  }
}

TEST_CASE("spares on another node take a lost node's ranks") {
  JobConfig config = of(2, 3, 1);
  config.nodes = {0, 1, 0};
  JobWorld world(config);
  lose_node(world, 1, config);
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 2});
  CHECK_FALSE(world.running.contains(1));  // the next spare, once its node is back
  world.feed(JobCore::NodeBack{1});
  CHECK(world.running.at(1) == -1);
}

TEST_CASE("a spare that is near a lost rank takes it") {
  JobConfig config = of(3, 3, 3);
  config.nodes = {0, 1, 2, 0, 1, 2};
  config.racks = {"s0.s1", "s0.s2", "s3"};
  SUBCASE("on the same host before others of its rack") {
    config.racks = {"s0", "s0", "s0"};
    JobWorld world(config);
    world.fail(1);
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 4, 2});
  }
  SUBCASE("on another host if its data were corrupt") {
    JobWorld world(config);
    world.running.erase(1);
    world.feed(JobCore::Ended{.slot = 1, .well = false, .kind = FailureKind::corrupt});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 3, 2});
  }
  SUBCASE("on another host if it is evicted") {
    JobWorld world(config);
    world.feed(JobCore::Replace{1, FailureKind::evicted, true});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 3, 2});
    CHECK(world.core.restarts_used() == 0);
  }
  SUBCASE("on the same host, or else on one below the same switches") {
    JobWorld world(config);
    world.fail(2);
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 1, 5});
    world.now += 1s;
    world.feed(JobCore::Clock{});
    lose_node(world, 1, config);
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 3, 5});
  }
  SUBCASE("the first one, if all are as near") {
    config.racks = {"s0.s1", "s0.s2", ""};
    JobWorld world(config);
    lose_node(world, 2, config);
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 1, 3});
  }
}

TEST_CASE("without a spare a rank is evicted for good, if the job does not need it") {
  JobConfig config = one_on_each_of(3, 2, 3);
  SUBCASE("it does not") {
    JobWorld world(config);
    world.feed(JobCore::Replace{1, FailureKind::evicted, true});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 2});
    lose_node(world, 2, config);
    world.feed(JobCore::NodeBack{2});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 2});
    CHECK_FALSE(world.running.contains(1));
  }
  SUBCASE("it does") {
    config.min_size = 3;
    JobWorld world(config);
    world.feed(JobCore::Replace{1, FailureKind::evicted, true});
    world.rejoin_all();
    CHECK(world.roster == Slots{0, 1, 2});
  }
}

TEST_CASE("a round whose nodes are all out of reach may continue, and no other begins meanwhile") {
  JobConfig config = of(2, 3, 2);
  config.nodes = {0, 1, 2, 2};
  config.node_ends = 6s;
  JobWorld world(config);
  world.feed(JobCore::NodeLost{0});
  CHECK(world.announced == std::vector<int>{1});  // rank 1 has not left it yet
  world.feed(JobCore::NodeLost{1});
  CHECK(world.announced == std::vector<int>{1});
  CHECK(world.core.deadline() == kStart + 6s);
  SUBCASE("until one of its nodes is back without it") {
    world.running.erase(1);
    world.feed(JobCore::NodeBack{1});
    CHECK(world.announced.size() == 2);
  }
  SUBCASE("until its nodes must have ended it") {
    world.now = kStart + 6s;
    world.feed(JobCore::Clock{});
    CHECK(world.announced.size() == 2);
    CHECK(world.roster == Slots{2, 3});
  }
  SUBCASE("by the next leader neither") {
    JobWorld next(config, world, {0, 1});
    for (const Slot slot : {2, 3}) next.rejoin(slot);
    CHECK(next.announced == std::vector<int>{1});
    next.now += 6s;
    next.feed(JobCore::Clock{});
    CHECK(next.announced.size() == 2);
  }
}

TEST_CASE("a round that one of its members has left, lost or not, is over") {
  JobConfig config = of(2, 3, 2);
  config.nodes = {0, 1, 2, 2};
  JobWorld world(config);
  SUBCASE("it has asked for the next one") { world.rejoin(1); }
  SUBCASE("another process has come in its place") {
    world.fail(1);
    world.now += 1s;
    world.feed(JobCore::Clock{});
    REQUIRE(world.running.contains(1));
  }
  for (const int node : {0, 1}) world.feed(JobCore::NodeLost{node});
  CHECK(world.announced.size() == 2);
}

TEST_CASE("workers of a plain program restart together, with fewer if the job may shrink") {
  auto config = on_two_nodes(2, 1, 2);
  JobWorld world(config, false);
  lose_node(world, 1, config);
  CHECK(world.core.size() == 2);
  CHECK(world.starts == 6);
  config.min_size = 4;
  JobWorld all(config, false);
  lose_node(all, 1, config);
  CHECK(all.running.empty());
  all.feed(JobCore::NodeBack{1});
  CHECK(all.starts == 8);
  CHECK(all.core.state() == JobState::active);
}

TEST_CASE("a plain program uses late hosts when all workers restart") {
  JobConfig config = of(2, 2);
  config.min_size = 1;
  config.max_size = 4;
  config.nodes = {0, 0, 1, 1};
  JobWorld world(config, false, {1});
  world.feed(JobCore::NodeBack{1});
  CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});  // no process without a rank
  CHECK(world.core.life_of(2) == "waiting for a restart");
  SUBCASE("as torchrun's agents would") {
    world.fail(1);
    CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}, {2, 2}, {3, 3}});
    CHECK(world.starts == 6);
    CHECK(world.core.restarts_used() == 1);
  }
  SUBCASE("unless they are to be lost") {
    world.feed(JobCore::NodeDrain{1});
    world.fail(1);
    CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  }
  SUBCASE("nor stays on such as are to be lost then") {
    world.feed(JobCore::NodeDrain{0});
    CHECK(world.stopped.empty());
    world.fail(1);
    CHECK(world.running == std::map<Slot, int>{{2, 0}, {3, 1}});
    CHECK(world.core.nobody_on(0));
  }
  SUBCASE("and ends without having had them") {
    world.succeed(0);
    world.succeed(1);
    REQUIRE(world.finish);
    CHECK(world.finish->end == JobEnding::succeeded);
    CHECK(world.starts == 2);
  }
}

TEST_CASE("a plain program leaves a draining node when all workers restart") {
  JobConfig config = of(4, 2);
  config.min_size = 2;
  config.nodes = {0, 0, 1, 1};
  JobWorld world(config, false);
  world.feed(JobCore::NodeDrain{0});
  CHECK(world.stopped.empty());
  SUBCASE("as far as it can do without") {
    world.fail(3);
    CHECK(world.running == std::map<Slot, int>{{2, 0}, {3, 1}});
    CHECK(world.core.nobody_on(0));
    world.feed(JobCore::NodeLost{0});
    world.feed(JobCore::NodeBack{0});
    world.fail(3);
    world.now = *world.core.deadline();  // the pause before a second restart
    world.feed(JobCore::Clock{});
    CHECK(world.running.size() == 4);
  }
  SUBCASE("and no further") {
    world.feed(JobCore::NodeDrain{1});
    world.fail(3);
    CHECK(world.running.size() == 2);
  }
}

TEST_CASE("spares of a plain program are started where a node was lost, not before") {
  JobConfig config = of(2, 3, 1);
  config.nodes = {0, 1, 0};
  JobWorld world(config, false);
  CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  SUBCASE("which a worker that fails does not need") {
    world.fail(1);
    CHECK(world.running == std::map<Slot, int>{{0, 0}, {1, 1}});
  }
  SUBCASE("in its ranks") {
    lose_node(world, 1, config);
    CHECK(world.running == std::map<Slot, int>{{0, 0}, {2, 1}});
    world.feed(JobCore::NodeBack{1});
    CHECK(world.running.size() == 2);
  }
}

TEST_CASE("a node that is lost while the job ends has ended") {
  const auto config = on_two_nodes(1, 0, 2);
  JobWorld world(config);
  world.stubborn = {1};
  world.fail(0);
  CHECK_FALSE(world.finish);
  lose_node(world, 1, config);
  CHECK(world.finish.has_value());
}

TEST_CASE("a job does not grow beyond the nodes that are there") {
  auto config = on_two_nodes(2, 0, 1);
  config.size = 2;
  JobCore core(config);
  CHECK(core.step(kStart, JobCore::NodeLost{1}).empty());
  JobWorld world(config);
  lose_node(world, 1, config);
  world.feed(JobCore::Resize{4});
  CHECK(world.core.target_size() == 2);
  world.feed(JobCore::NodeBack{1});
  world.rejoin_all();
  CHECK(world.core.size() == 4);
}

TEST_CASE("a job that began with fewer nodes grows by those that come later") {
  auto config = on_two_nodes(2, 0, 2);
  config.size = 2;
  JobWorld world(config, true, {1});
  CHECK(world.roster == Slots{0, 1});
  world.feed(JobCore::NodeBack{1});
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2, 3});
  CHECK(world.core.restarts_used() == 0);
  lose_node(world, 1, config);  // and again
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1});
  world.feed(JobCore::NodeBack{1});
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1, 2, 3});
}

TEST_CASE("members leave a draining node in one round, and come back with another node") {
  JobWorld world(on_two_nodes(2, 0, 2));
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::NodeDrain{0});
  CHECK(world.losts == std::vector<int>{-1});
  CHECK_FALSE(world.core.nobody_on(0));
  world.rejoin_all();
  CHECK(world.roster == Slots{2, 3});
  CHECK(world.stopped == Slots{0, 1});
  CHECK(world.core.nobody_on(0));
  CHECK_FALSE(world.core.nobody_on(1));
  CHECK(world.core.restarts_used() == 0);
  world.feed(JobCore::Resize{4});  // not there
  CHECK(world.core.target_size() == 2);
  world.feed(JobCore::NodeLost{0});
  CHECK(world.announced == std::vector<int>{1, 2});
  world.feed(JobCore::NodeBack{0});
  world.rejoin_all();
  CHECK(world.roster == Slots{2, 3, 0, 1});
}

TEST_CASE("members leave a draining node only after the first commit of a round") {
  JobWorld world(on_two_nodes(2, 3, 2));
  world.feed(JobCore::Progress{0, 1});
  world.fail(0);
  world.rejoin_all();
  REQUIRE(world.announced == std::vector<int>{1, 2});
  world.feed(JobCore::NodeDrain{1});  // the members may still meet
  CHECK(world.losts == std::vector<int>{0});
  CHECK(world.core.state() == JobState::active);
  SUBCASE("which one of them reports") { world.feed(JobCore::Progress{1, 2}); }
  SUBCASE("or after 5 s, if they report none") {
    world.now += 5s;
    world.feed(JobCore::Clock{});
  }
  CHECK(world.losts == std::vector<int>{0, -1});
  CHECK(world.stopped.empty());
  world.rejoin_all();
  CHECK(world.roster == Slots{0, 1});
  CHECK(world.stopped == Slots{2, 3});
  CHECK(world.core.nobody_on(1));
}

TEST_CASE("a draining node that stays gets its members back in one round") {
  JobWorld world(on_two_nodes(2, 0, 2));
  world.feed(JobCore::Progress{0, 1});
  world.feed(JobCore::NodeDrain{0});
  SUBCASE("after they have left") { world.rejoin_all(); }
  SUBCASE("while they leave") {}
  world.feed(JobCore::NodeBack{0});
  world.rejoin_all();
  CHECK(world.core.size() == 4);
  CHECK(world.announced.size() <= 3);
  CHECK(world.core.restarts_used() == 0);
  world.feed(JobCore::Progress{2, 2});
  world.feed(JobCore::NodeDrain{0});
  world.rejoin_all();
  CHECK(world.roster == Slots{2, 3});
  CHECK(world.core.nobody_on(0));
}

TEST_CASE("a needed member stays on a draining node until another has come") {
  auto config = on_two_nodes(2, 0, 2);
  config.size = 2;  // and two more may come with the second node
  JobWorld world(config, true, {1});
  world.feed(JobCore::NodeDrain{0});
  world.feed(JobCore::Progress{0, 1});
  CHECK(world.fences.empty());
  CHECK_FALSE(world.core.nobody_on(0));
  world.feed(JobCore::NodeBack{1});
  for (std::uint64_t commit = 2; commit <= 3; ++commit) {
    world.rejoin_all();
    world.feed(JobCore::Progress{2, commit});
  }
  CHECK(world.roster == Slots{2, 3});
  CHECK(world.core.nobody_on(0));
}

TEST_CASE("with --restart-scope node, workers on other nodes stay") {
  auto config = on_two_nodes(2, 3, 4);
  config.scope = RestartScope::node;
  JobWorld world(config);
  world.fail(3);
  CHECK(world.stopped == Slots{2});
  world.rejoin_all();
  CHECK(world.announced == std::vector<int>{1, 2});
  CHECK(world.roster == Slots{0, 1, 2, 3});
  world.rejoin(0);  // without a failure
  CHECK(world.stopped == Slots{2});
  JobWorld plain(config, false);
  plain.fail(3);
  CHECK(plain.stopped == Slots{0, 1, 2});
}

// -- Another leader

TEST_CASE("the next leader's first round has a new number and the processes that are there") {
  const JobConfig config = one_on_each_of(3, 1, 2);
  const JobWorld first(config);
  JobWorld world(config, first);
  CHECK(world.fences.back() > first.announced.back());
  CHECK(world.announced == first.announced);  // they have not left the old one yet
  world.rejoin_all();
  for (const Slot slot : {0, 1, 2}) world.rejoin(slot);
  REQUIRE(world.announced.size() == 2);
  CHECK(world.roster == first.roster);
  CHECK(world.starts == 0);
  CHECK(world.core.restarts_used() == 0);
}

TEST_CASE("a node that was lost with its leader is one failure; the others go on without it") {
  const JobConfig config = one_on_each_of(3, 2, 2);
  const JobWorld first(config);
  JobWorld world(config, first, {0});
  for (const Slot slot : {1, 2}) world.rejoin(slot);
  CHECK(world.roster == std::vector<Slot>{1, 2});
  CHECK(world.starts == 0);
  CHECK(world.core.restarts_left(world.now) == 1);
  world.feed(JobCore::NodeBack{0});
  for (const Slot slot : {1, 2}) world.rejoin(slot);
  CHECK(world.roster.size() == 3);
  JobWorld third(config, world, {1});
  CHECK(third.core.restarts_left(third.now) == 0);
  JobWorld fourth(config, third, {0});
  REQUIRE(fourth.finish);
  CHECK(fourth.finish->end == JobEnding::worker_failed);
}

TEST_CASE("a process that ended while nobody led is started again in its place") {
  const JobConfig config = one_on_each_of(2, 1, 2);
  JobWorld first(config);
  first.running.erase(1);
  JobWorld world(config, first);
  world.rejoin(0);
  CHECK(world.starts == 1);
  CHECK(world.roster == std::vector<Slot>{0, 1});
  CHECK(world.core.restarts_used() == 1);
}

TEST_CASE("a host whose agent restarts with the leader is one failure") {
  JobConfig config = one_on_each_of(4, 1, 1);
  config.nodes = {0, 0, 1, 1};
  JobWorld first(config);
  first.running.erase(0);
  first.running.erase(1);
  JobWorld world(config, first);
  world.rejoin(2);
  world.rejoin(3);
  CHECK_FALSE(world.finish);
  CHECK(world.starts == 2);
  CHECK(world.roster == std::vector<Slot>{0, 1, 2, 3});
  CHECK(world.core.restarts_used() == 1);
}

TEST_CASE("programs that do not take part in rounds are started again by the next leader") {
  const JobConfig config = one_on_each_of(2, 1, 2);
  const JobWorld first(config, false);
  JobWorld world(config, first);
  CHECK(world.stopped == std::vector<Slot>{0, 1});
  CHECK(world.starts == 2);
  CHECK(world.core.round() > first.core.round());
}

TEST_CASE("a job whose members have all finished is over under the next leader") {
  JobCore core(one_on_each_of(2, 1, 0));
  const JobCore::Found a{.slot = 0, .done = true, .round = 1},
      b{.slot = 1, .done = true, .round = 1};
  JobCore::Resume resume;
  resume.was.round = resume.was.live = 1;
  resume.was.roster = {0, 1};
  resume.found = {a, b};
  const auto actions = core.step(kStart, resume);
  REQUIRE(actions.size() == 1);
  CHECK(std::get<JobCore::Finish>(actions.front()).end == JobEnding::succeeded);
}

TEST_CASE("what a lost leader had decided about a member stands") {
  const JobCore::Found member{.slot = 0, .linked = true, .in_round = 3, .round = 3, .version = 8},
      other{.slot = 1, .linked = true, .in_round = 3, .round = 3, .version = 8},
      spare{.slot = 2, .linked = true, .ready = true, .round = 1};
  JobConfig config;
  config.size = config.max_size = 2;
  config.min_size = config.spares = 1;
  JobCore::Resume resume;
  resume.was = {.round = 4, .live = 3, .wished_size = 2};
  resume.found = {member, other, spare};
  const auto stopped = [&] {
    JobCore core(config);
    std::vector<std::pair<Slot, int>> all;
    for (const auto& action : core.step(kStart, resume)) {
      const auto* stop = std::get_if<JobCore::StopWorkers>(&action);
      if (stop != nullptr) all.emplace_back(stop->slots.front(), stop->signal);
    }
    return all;
  };
  SUBCASE("replaced: it is killed, though nobody was told") {
    resume.was.roster = {2, 1};
    CHECK(stopped() == std::vector<std::pair<Slot, int>>{{0, SIGKILL}});
  }
  SUBCASE("left out: it stays for one round, as its shards may be needed, and then goes") {
    resume.was.wished_size = 1;
    resume.was.roster = {1};
    resume.was.leaving = {{0, 0}};
    resume.found[1].ready = true;
    CHECK(stopped().empty());
    JobCore core(config);
    core.step(kStart, resume);
    CHECK(core.rank_of(0) == 0);
    CHECK(core.rank_of(1) == 1);
    CHECK(core.target_size() == 1);
  }
}

TEST_CASE("the members of the newest round that may have made progress") {
  const JobRecord record{.round = 5, .live = 3, .roster = {0, 2}};
  CHECK(JobCore::holds(record, {{.slot = 2, .in_round = 3, .round = 3}}));
  CHECK(JobCore::holds(record, {{.slot = 2, .in_round = 2, .round = 2}}));  // does not know 3 yet
  CHECK(JobCore::holds(record, {{.slot = 2, .round = 3}}));                 // not linked
  CHECK_FALSE(JobCore::holds(record, {{.slot = 2, .round = 4}}));
  CHECK_FALSE(JobCore::holds(record, {{.slot = 1, .round = 3}}));
  CHECK_FALSE(JobCore::holds(record, {}));
}
