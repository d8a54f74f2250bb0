// Hosts join a job at its leader, are lost and come back. Messages of nodes, with the job's slots.
#include "launcher/lead/membership/node_membership.h"

#include <csignal>

#include "tests/unit/launcher/membership_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Words = std::vector<std::string>;

// Host b has link 1, host c link 2.
MembershipWorld& join_b_and_c(MembershipWorld& world) {
  world.comes(1, "b");
  world.comes(2, "c");
  REQUIRE(world.news == Words{"begin"});
  world.news.clear();
  world.sent.clear();
  return world;
}

}  // namespace

TEST_CASE("membership: hosts join, and the job begins once all are there") {
  MembershipWorld world(membership_plan(3));
  CHECK(world.membership.deadline() == kStart + 600s);
  world.comes(1, "b");
  CHECK(world.news.empty());
  CHECK_FALSE(world.got<NodeWelcome>(1));
  CHECK(world.membership.who_is_here() == "2 of 3 hosts are here (a, b)");
  world.comes(2, "c");
  CHECK(world.news == Words{"begin"});
  CHECK_FALSE(world.membership.deadline());
  const auto welcome = world.got<NodeWelcome>(2);
  REQUIRE(welcome);
  CHECK(welcome->number == 2);
  CHECK(welcome->slots == 2);
  CHECK(welcome->run.empty());  // no journal: the job ends with its leader
  CHECK(welcome->led_by == "a");
  CHECK(welcome->still_after == 7500ms);
  CHECK(world.watched == std::set<MembershipWorld::Link>{1, 2});
  CHECK(world.sent[NodeMembership::kOwnLink].empty());
  const JobConfig config = world.membership.shape({.min_size = 9});
  CHECK(config.size == 6);
  CHECK(config.max_size == 6);
  CHECK(config.min_size == 6);
  CHECK(config.nodes == std::vector<int>{0, 0, 1, 1, 2, 2});
  CHECK(config.first_round == 1);
  CHECK_FALSE(world.membership.resumed());
}

TEST_CASE("membership: a job on one host begins at once") {
  Plan plan = membership_plan(1);
  plan.max_nproc = 4;
  MembershipWorld world(plan);
  CHECK(world.news == Words{"begin"});
  CHECK(world.membership.own_slots() == 4);
  CHECK_FALSE(world.membership.deadline());
  world.membership.message(NodeMembership::kOwnLink, NodeSpawned{1});
  CHECK(world.last_event<JobCore::Spawned>()->slot == 1);
}

TEST_CASE(
    "membership: hosts of one rack have neighbouring ranks, by the file or by their own words") {
  Plan plan = membership_plan(5);
  plan.nodes.topology = "topology.conf";
  plan.nodes.racks = {{"a", "s0.s1"}, {"b", "s0.s2"}, {"c", "s0.s2"}, {"d", "s0.s1"}};
  MembershipWorld world(plan);
  world.comes(1, "b");
  NodeJoin own = world.request_of("c");  // the file is wrong about c
  own.rack = "s0.s1\n";
  world.comes(2, own);
  world.comes(3, "e");
  CHECK(world.warnings.empty());
  world.comes(4, "d.example.org");
  CHECK(world.news == Words{"begin"});
  CHECK(world.warnings ==
        Words{"host e is not in topology.conf, so it counts as a rack of its own"});
  JobConfig config = world.membership.shape({});
  CHECK(config.racks == Words{"s0.s1", "s0.s2", "s0.s1\\x0a", "", "s0.s1"});
  CHECK(config.nodes == std::vector<int>{0, 0, 4, 4, 1, 1, 2, 2, 3, 3});
  CHECK(world.got<NodeWelcome>(4)->number == 4);
  const JobJournal journal = world.membership.journal({});
  CHECK((journal.hosts[1].rack == "s0.s2" && journal.hosts[3].rack.empty()));
  // Each is warned about once, whatever becomes of it.
  world.goes(3);
  world.comes(5, "e");
  world.membership.message(5, NodeTested{});
  CHECK(world.last_warning() == "host e has joined");
}

TEST_CASE("membership: the list of hosts names a host in the file, too") {
  Plan plan = membership_plan(3);
  plan.nodes.hosts = {{.name = "here", .leads = true}, {.name = "n1"}, {.name = "n2"}};
  plan.nodes.rank = 0;
  plan.nodes.racks = {{"here", "r"}, {"n1", "s"}, {"n2", "r"}};
  MembershipWorld world(plan);
  for (const int number : {1, 2}) {
    NodeJoin request = world.request_of(number == 1 ? "b" : "c");
    request.number = number;
    world.comes(static_cast<MembershipWorld::Link>(number), request);
  }
  CHECK(world.warnings.empty());
  CHECK(world.membership.shape({}).nodes == std::vector<int>{0, 0, 2, 2, 1, 1});
}

TEST_CASE("membership: without a file a host without a rack is named if others have one") {
  Plan plan = membership_plan(3);
  plan.nodes.rack = "r1";
  MembershipWorld world(plan);
  world.comes(1, "b");
  NodeJoin own = world.request_of("c");
  own.rack = "r1";
  world.comes(2, own);
  CHECK(world.last_warning() ==
        "host b has no --rack as others have, so it counts as a rack of its own");
  CHECK(world.membership.shape({}).nodes == std::vector<int>{0, 0, 2, 2, 1, 1});
}

TEST_CASE("membership: without enough hosts in time the leader gives up") {
  MembershipWorld world(membership_plan(3));
  world.comes(1, "b");
  world.pass(599s);
  CHECK(world.news.empty());
  world.pass(1s);
  CHECK(world.news == Words{"give up: 2 of 3 hosts are here (a, b) after 600 s, and 3 are needed"});
}

TEST_CASE("membership: a host that leaves before the begin is not counted") {
  MembershipWorld world(membership_plan(3));
  world.comes(1, "b");
  world.goes(1);
  world.comes(2, "c");
  CHECK(world.news.empty());
  world.comes(3, "b");
  CHECK(world.news == Words{"begin"});
}

TEST_CASE("membership: hosts get orders to log in, and answer them, before the job begins") {
  MembershipWorld world(membership_plan(3));
  world.membership.opened(1, "10.0.0.b");
  world.membership.message(1, NodeLoginEnded{7, 69, false, "of a stranger"});
  CHECK(world.logins.empty());
  world.comes(1, "b");
  CHECK(world.logins == Words{"linked 1"});
  world.membership.order(1, NodeLogIn{.login = 4, .number = 2, .host = "c"});
  CHECK(world.got<NodeLogIn>(1)->host == "c");
  world.membership.message(1, NodeLoginEnded{4, 69, false, "no key"});
  CHECK(world.logins.back() == "login 4 ended: no key");
  world.goes(1);
  CHECK(world.logins.back() == "unlinked 1");
  CHECK(world.news.empty());
}

TEST_CASE("membership: a host is lost, and back once it is healthy") {
  MembershipWorld world(membership_plan(3));
  join_b_and_c(world);
  world.goes(1);
  CHECK(world.news == Words{"lost 1 b"});
  CHECK(world.last_warning() == "lost host b");
  CHECK_FALSE(world.membership.is_here(1));
  CHECK(world.membership.absent() == std::vector<int>{1});
  CHECK(world.membership.others_here() == std::vector<int>{2});
  world.membership.fence({1, 2});
  CHECK(world.sent[1].empty());
  CHECK(world.got<NodeFence>(2)->lost == 2);

  world.comes(3, "b");
  CHECK(world.got<NodeTest>(3));
  CHECK(world.membership.newcomers() == Words{"b: being tested"});
  CHECK(world.news.size() == 1);
  world.membership.message(3, NodeTested{});
  CHECK(world.news.back() == "back 1 b");
  CHECK(world.got<NodeWelcome>(3)->number == 1);
  CHECK(world.membership.newcomers().empty());
  CHECK(world.membership.host_of(3) == "b");
}

TEST_CASE("membership: a sick host gets no workers, and is tested again") {
  Plan plan = membership_plan(3);
  plan.nodes.min = 2;
  MembershipWorld world(plan);
  world.comes(1, "b");
  world.pass(3s);
  REQUIRE(world.news == Words{"begin"});
  world.comes(2, "c");
  REQUIRE(world.got<NodeTest>(2));
  world.membership.message(2, NodeTested{"no GPU\n"});
  CHECK(
      world.last_warning().starts_with("host c failed its health check and gets no workers: no "
                                       "GPU\\x0a; dlaunch tests it again in "));
  CHECK(world.membership.newcomers().at(0).starts_with("c: not healthy, tested again in "));
  CHECK_FALSE(world.got<NodeTest>(2));
  REQUIRE(world.membership.deadline());
  world.pass(*world.membership.deadline() - world.clock);
  REQUIRE(world.got<NodeTest>(2));
  CHECK_FALSE(world.membership.deadline());
  world.membership.message(2, NodeTested{});
  CHECK(world.news.back() == "back 2 c");
  // Nobody asked.
  world.membership.message(1, NodeTested{});
  CHECK(world.news.size() == 2);
}

TEST_CASE("membership: a refused host learns why, and its link is closed") {
  MembershipWorld world(membership_plan(3));
  NodeJoin other = world.request_of("b");
  other.job = "another --grace";
  world.comes(1, other);
  const std::string why = fmt::format("host b was started with another --grace; here it is {}",
                                      what_must_agree(world.plan));
  CHECK(world.got<NodeRefused>(1)->why == why);
  CHECK(world.last_warning() == "refused a host at 10.0.0.b: " + why);
  CHECK_FALSE(world.open.contains(1));

  NodeJoin mixed = world.request_of("b");
  mixed.build += 1;
  world.comes(4, mixed);
  CHECK(world.got<NodeRefused>(4)->why.starts_with("host b runs another build of dlaunch "));
  CHECK_FALSE(world.open.contains(4));

  NodeJoin late = world.request_of("b");
  late.number = 3;
  world.comes(2, late);
  CHECK(world.got<NodeRefused>(2)->why == "there is no node rank 3 of 3 nodes");
  CHECK_FALSE(world.open.contains(2));

  NodeJoin orphan = world.request_of("b");
  orphan.login = world.gone_login = 7;
  world.comes(3, orphan);
  CHECK(world.got<NodeRefused>(3)->why == "what started this dlaunch on host b has ended");
}

TEST_CASE("membership: a later dlaunch of a host replaces the earlier one") {
  MembershipWorld world(membership_plan(3));
  join_b_and_c(world);
  world.comes(3, "b");
  REQUIRE(world.got<NodeTest>(3));
  world.membership.message(3, NodeTested{});
  CHECK(world.news.empty());  // b has its place: the new one asks for that by its number
  NodeJoin again = world.request_of("b");
  again.number = 1;
  world.comes(4, again);
  world.membership.message(4, NodeTested{});
  CHECK(world.got<NodeRefused>(1)->why == "a later connection of host b has taken its place");
  CHECK_FALSE(world.open.contains(1));
  CHECK(world.news == Words{"lost 1 b", "back 1 b"});
}

TEST_CASE("membership: a host with workers of another run ends them first") {
  MembershipWorld world(membership_plan(3));
  NodeJoin request = world.request_of("b");
  request.run = "77";
  request.found = {{.slot = 0, .round = 3}};
  world.comes(1, request);
  CHECK(world.got<NodeClear>(1));
  CHECK(world.open.contains(1));
  world.membership.message(1, world.request_of("b"));
  CHECK(world.membership.who_is_here() == "2 of 3 hosts are here (a, b)");

  Plan elects = membership_plan(3);
  elects.nodes.folder = "/shared";
  MembershipWorld elected(elects);
  elected.comes(1, request);
  CHECK(elected.got<NodeRefused>(1)->why == "the job that host b was in is over");
}

TEST_CASE("membership: a drained host stays out until it is undrained") {
  MembershipWorld world(membership_plan(3));
  join_b_and_c(world);
  world.membership.keep_out("b", true);
  world.membership.release(1, "drained");
  CHECK(world.got<NodeFinish>(1)->why == "drained");
  world.goes(1);
  CHECK(world.last_warning() == "host b has left");
  CHECK(world.news == Words{"left 1"});  // no loss
  world.membership.release(1);
  CHECK_FALSE(world.got<NodeFinish>(1));

  world.comes(3, "b");
  CHECK(world.got<NodeRefused>(3)->why ==
        "host b is drained: 'dlaunchctl undrain b' on host a lets it come back");
  world.membership.keep_out("b", false);
  world.comes(4, "b");
  world.membership.message(4, NodeTested{});
  CHECK(world.news == Words{"left 1", "back 1 b"});
}

TEST_CASE("membership: a translated address is warned about once for each host") {
  MembershipWorld world(membership_plan(3));
  NodeJoin request = world.request_of("b");
  request.master_addr = "172.17.0.2";
  world.comes(1, request);
  REQUIRE(world.warnings.size() == 1);
  CHECK(world.last_warning().starts_with(
      "host b has the address 172.17.0.2 for itself and 10.0.0.b"));
  world.goes(1);
  world.comes(2, request);
  CHECK(world.warnings.size() == 1);
}

// -- Messages

TEST_CASE("membership: what a node says of its slots is about the job's") {
  MembershipWorld world(membership_plan(3));
  join_b_and_c(world);
  world.membership.message(2, NodeSpawned{1});
  CHECK(world.last_event<JobCore::Spawned>()->slot == 5);
  world.membership.message(1, NodeReady{0, 3, 8, "why"});
  const auto ready = world.last_event<JobCore::Ready>();
  REQUIRE(ready);
  CHECK((ready->slot == 2 && ready->left == 3 && ready->version == 8 && ready->why == "why"));
  world.membership.message(1, NodeNotStarted{1});
  CHECK(
      (world.last_event<JobCore::Ended>()->slot == 3 && world.last_event<JobCore::Ended>()->well));
  world.membership.message(1, NodeStartFailed{0, {.what = "no such file"}});
  CHECK(world.news.back() == "not started 2: on host b: no such file");
  CHECK(world.last_event<JobCore::SpawnFailed>()->slot == 2);
  world.membership.message(NodeMembership::kOwnLink, NodeStartFailed{0, {.what = "no such file"}});
  CHECK(world.news.back() == "not started 0: no such file");
  world.membership.message(2, NodeSeen{});
  CHECK(world.news.back() == "monitor 2");
  world.membership.message(2, NodeInputWanted{true});
  CHECK(world.news.back() == "input 2");
  // What only a leader sends.
  const auto news = world.news.size();
  world.membership.message(2, NodeFinish{});
  world.membership.message(2, NodeDump{});
  CHECK(world.news.size() == news);
  // Neither a slot that the node does not have, nor a host that has not joined.
  const auto before = world.events.size();
  world.membership.message(2, NodeSpawned{2});
  world.membership.opened(9, "?");
  world.membership.message(9, NodeSpawned{0});
  CHECK(world.events.size() == before);
}

TEST_CASE("membership: the end of a worker elsewhere has its host, and past times") {
  MembershipWorld world(membership_plan(3));
  join_b_and_c(world);
  NodeEnded ended{.slot = 0, .end = {}};
  ended.end.started = kStart + 3s;
  ended.end.ended = kStart + 2s;
  ended.end.traceback = Traceback{.begun = kStart + 4s};
  world.pass(1s);
  world.membership.message(1, ended);
  CHECK(world.news == Words{"ended 2"});
  CHECK(world.ends[0].host == "b");
  CHECK(world.ends[0].ended == kStart + 1s);
  CHECK(world.ends[0].started == kStart + 1s);
  CHECK(world.ends[0].traceback->begun == kStart + 1s);
  CHECK(world.ends[0].clock_error == 1s);
  world.clock_error_now = 3ms;
  world.membership.message(1, ended);
  CHECK(world.ends[1].clock_error == 3ms);
  world.membership.message(NodeMembership::kOwnLink, ended);
  CHECK(world.ends[2].ended == kStart + 2s);
  CHECK(world.ends[2].host.empty());
}

TEST_CASE("membership: a signal that a scheduler sends to all nodes counts once") {
  MembershipWorld world(membership_plan(3));
  NodeMembership& membership = world.membership;
  CHECK(membership.is_news(1, SIGUSR1));
  CHECK_FALSE(membership.is_news(2, SIGUSR1));
  CHECK_FALSE(membership.is_own_news(SIGUSR1));
  CHECK(membership.is_own_news(SIGUSR1));  // the second one
  CHECK_FALSE(membership.is_news(1, SIGUSR1));
  CHECK(membership.is_news(1, SIGTERM));
}

TEST_CASE("membership: a node's signal goes to the job, or only to the own workers") {
  MembershipWorld by_hand(membership_plan(3));
  join_b_and_c(by_hand);
  for (int twice = 0; twice < 2; ++twice) by_hand.membership.message(1, NodeSignal{SIGTERM});
  CHECK(by_hand.events.size() == 2);
  CHECK(by_hand.news.empty());

  Plan slurm = membership_plan(3);
  slurm.nodes.starter = Starter::srun;
  MembershipWorld steps(slurm);
  join_b_and_c(steps);
  for (const int link : {1, 2}) {
    steps.membership.message(static_cast<MembershipWorld::Link>(link), NodeSignal{SIGUSR1});
  }
  CHECK(steps.events.empty());  // the steps have signalled the workers elsewhere
  CHECK(steps.sent[NodeMembership::kOwnLink].size() == 1);
  CHECK(steps.got<NodeHandOn>(NodeMembership::kOwnLink)->signal == SIGUSR1);
  for (const int link : {1, 2}) {
    steps.membership.message(static_cast<MembershipWorld::Link>(link), NodeSignal{SIGTERM});
  }
  CHECK(steps.events.size() == 1);

  Plan pods = membership_plan(3);
  pods.nodes.leader_returns = true;
  MembershipWorld kubernetes(pods);
  join_b_and_c(kubernetes);
  kubernetes.may_leave = true;
  kubernetes.membership.message(1, NodeSignal{SIGTERM});
  CHECK(kubernetes.news == Words{"leaves 1"});
  CHECK(kubernetes.events.empty());
  kubernetes.may_leave = false;
  kubernetes.membership.message(1, NodeSignal{SIGTERM});
  CHECK(kubernetes.last_event<JobCore::Signal>()->number == SIGTERM);
}

TEST_CASE(
    "membership: the own node gets its orders last, because a failure there stops the others") {
  MembershipWorld world(membership_plan(3));
  join_b_and_c(world);
  world.order.clear();
  world.membership.stop({.slots = {0, 3, 4, 5}, .signal = SIGTERM});
  CHECK(world.got<NodeStop>(NodeMembership::kOwnLink)->slots == std::vector<Slot>{0});
  CHECK(world.got<NodeStop>(1)->slots == std::vector<Slot>{1});
  CHECK(world.got<NodeStop>(2)->slots == std::vector<Slot>{0, 1});
  CHECK(world.order == std::vector<MembershipWorld::Link>{1, 2, 0});
  world.order.clear();
  world.membership.hand_on({SIGUSR2});
  for (const MembershipWorld::Link link : {0, 1, 2}) {
    CHECK(world.got<NodeHandOn>(link)->signal == SIGUSR2);
  }
  CHECK(world.order == std::vector<MembershipWorld::Link>{1, 2, 0});
}

TEST_CASE("membership: a host that is silent for two beats is not heard") {
  MembershipWorld world(membership_plan(3));
  join_b_and_c(world);
  world.silent = {1};
  CHECK(world.membership.is_heard(0));
  CHECK_FALSE(world.membership.is_heard(1));
  CHECK(world.membership.is_heard(2));
}

TEST_CASE("membership: at the end all hosts learn of it, also those that wait to be taken in") {
  Plan plan = membership_plan(3);
  plan.nodes.min = 2;
  MembershipWorld world(plan);
  world.comes(1, "b");
  world.pass(3s);
  world.comes(2, "c");
  world.membership.finish(3, "rank 0 failed");
  for (const MembershipWorld::Link link : {1, 2}) {
    const auto finish = world.got<NodeFinish>(link);
    REQUIRE(finish);
    CHECK(finish->exit_code == 3);
    CHECK(finish->why == "rank 0 failed");
  }
  world.news.clear();
  world.membership.message(2, NodeTested{});
  world.goes(1);
  world.membership.give_input(1, "x");
  CHECK(world.news.empty());
  CHECK(world.sent[1].empty());
  CHECK_FALSE(world.membership.deadline());
}

TEST_CASE("membership: who asks from another machine gets the answer in parts, and is no host") {
  MembershipWorld world(membership_plan(2));
  world.open.insert(7);
  world.membership.opened(7, "10.0.0.9");
  world.membership.message(7, NodeAsks{"a question"});
  CHECK(world.asked ==
        std::vector<std::pair<MembershipWorld::Link, std::string>>{{7, "a question"}});
  world.comes(1, "b");
  CHECK(world.news == std::vector<std::string>{"begin"});
  const std::string text(std::size_t{700} << 10, 'x');
  world.membership.answer(7, text);
  std::string got;
  for (const auto& message : world.sent[7]) {
    const auto& part = std::get<NodeAnswers>(message);
    got += part.part;
    CHECK(part.last == (got.size() == text.size()));
  }
  CHECK(got == text);
  CHECK_FALSE(world.open.contains(7));
  CHECK(world.news.size() == 1);  // nothing was lost
  // A host of the job has no questions.
  world.membership.message(1, NodeAsks{"another"});
  CHECK(world.asked.size() == 1);
}
