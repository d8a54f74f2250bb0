// A leader that continues a job which began under another leader, or before it was requeued.
#include "launcher/lead/membership/node_membership.h"
#include "tests/unit/launcher/membership_world.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// Hosts a, b and c elect the leader; min of them are enough.
Plan elected_plan(int min = 2) {
  Plan plan = membership_plan(3);
  plan.nodes.folder = "/shared";
  plan.nodes.min = min;
  return plan;
}

// c led this job; a and b had two workers each, and b one spare.
JobJournal written_by_c() {
  JobJournal was{.run = "77",
                 .size = 4,
                 .hosts = {{"a", 2}, {"b", 2}, {"c", 2}},
                 .nodes = {0, 0, 1, 1, 1, 2, 2},
                 .led = 2};
  was.job.round = 7;
  was.job.roster = {0, 1, 2, 3};
  was.drained = {{"d", 1, true}};
  return was;
}

NodeJoin with_workers(const MembershipWorld& world, const std::string& host) {
  NodeJoin request = world.request_of(host);
  request.run = "77";
  request.found = {{.slot = 1, .linked = true, .in_round = 7, .round = 7, .version = 9},
                   {.slot = 6, .round = 7}};  // there is none
  return request;
}

}  // namespace

TEST_CASE("earlier job: it continues with the workers of its hosts") {
  MembershipWorld world(elected_plan(3), written_by_c());
  CHECK(world.membership.awaits_earlier());
  world.comes(1, with_workers(world, "b"));
  CHECK(world.news.empty());  // two of three hosts, and three are needed
  world.comes(2, "c");        // has none of its workers: it waits
  CHECK(world.news.empty());
  CHECK(world.sent[2].empty());
  world.pass(5s);
  CHECK(world.news == std::vector<std::string>{"begin"});
  CHECK_FALSE(world.membership.awaits_earlier());
  const auto resumed = world.membership.resumed();
  REQUIRE(resumed);
  CHECK(resumed->was.round == 7);
  REQUIRE(resumed->found.size() == 1);
  const JobCore::Found& found = resumed->found[0];
  CHECK((found.slot == 3 && found.linked && found.in_round == 7 && found.version == 9));
  CHECK(world.got<NodeWelcome>(1)->run == "77");
  const JobConfig config = world.membership.shape({.spares = 1});
  CHECK(config.size == 4);
  CHECK(config.max_size == 6);
  CHECK(config.nodes == written_by_c().nodes);
  CHECK(world.membership.drained_before().at(0).name == "d");
}

TEST_CASE("earlier job: the ranks on each host, without those that had ended well") {
  JobJournal was = written_by_c();
  was.job.roster = {5, 0, 6, 3};
  was.job.done = {6};
  MembershipWorld world(elected_plan(), was);
  CHECK(world.membership.ranks_before(0) == std::vector<int>{1});
  CHECK(world.membership.ranks_before(1) == std::vector<int>{3});
  CHECK(world.membership.ranks_before(2) == std::vector<int>{0});
  CHECK(MembershipWorld(elected_plan()).membership.ranks_before(0).empty());
}

TEST_CASE("earlier job: it begins as soon as its hosts are there, and others are tested then") {
  MembershipWorld world(elected_plan(), written_by_c());
  world.comes(2, "c");
  CHECK(world.news.empty());
  world.comes(1, with_workers(world, "b"));
  CHECK(world.news == std::vector<std::string>{"begin"});
  CHECK(world.membership.absent() == std::vector<int>{2});
  CHECK(world.got<NodeTest>(2));
  world.membership.message(2, NodeTested{});
  CHECK(world.news.back() == "back 2 c");
  // Its workers came too late: there is no place for them.
  world.goes(1);
  world.comes(3, with_workers(world, "b"));
  CHECK(world.got<NodeClear>(3));
}

TEST_CASE("earlier job: without any of its hosts a new one begins, with later rounds") {
  MembershipWorld world(elected_plan(), written_by_c());
  world.comes(1, "b");
  world.pass(4999ms);
  CHECK(world.news.empty());
  world.pass(1ms);
  CHECK(world.last_warning() ==
        "found nothing of an earlier job 'j'; the job starts from the beginning");
  CHECK(world.membership.who_is_here() == "2 of 3 hosts are here (a, b)");
  CHECK(world.membership.first_round() == 8);
  world.pass(3s);
  CHECK(world.news == std::vector<std::string>{"begin"});
  CHECK_FALSE(world.membership.resumed());
  CHECK(world.membership.drained_before().empty());
  CHECK(world.membership.shape({}).nodes == std::vector<int>{0, 0, 1, 1, 2, 2});
  // Under the old name: its workers are of another run now.
  world.comes(2, with_workers(world, "c"));
  CHECK(world.open.contains(2) == (world.membership.journal({}).run == "77"));
}

TEST_CASE("earlier job: a short --join-timeout shortens the wait for its hosts") {
  Plan plan = elected_plan();
  plan.join_timeout = 4s;
  MembershipWorld world(plan, written_by_c());
  world.pass(2s);
  CHECK_FALSE(world.membership.awaits_earlier());
}

TEST_CASE("earlier job: with another command line only its numbers are used") {
  Plan plan = elected_plan();
  plan.nproc = 4;
  MembershipWorld world(plan, written_by_c());
  CHECK_FALSE(world.membership.awaits_earlier());
  CHECK(world.last_warning() ==
        "found nothing of an earlier job 'j'; the job starts from the beginning");
  CHECK(world.membership.first_round() == 8);
  NodeJoin request = with_workers(world, "b");
  world.comes(1, request);
  CHECK(world.got<NodeRefused>(1)->why == "the job that host b was in is over");
}

TEST_CASE("earlier job: it keeps the order of its ranks, and the racks of its hosts") {
  JobJournal was = written_by_c();
  was.hosts = {{"a", 2, "r1"}, {"b", 2, "r2"}, {"c", 2, "r1"}};
  was.nodes = {0, 0, 2, 2, 1, 1};
  was.size = 6;
  Plan plan = elected_plan();
  plan.nodes.rack = "r1";
  MembershipWorld world(plan, was);
  NodeJoin request = with_workers(world, "b");
  request.rack = "r3";  // it has moved
  world.comes(1, request);
  REQUIRE(world.news == std::vector<std::string>{"begin"});
  const JobConfig config = world.membership.shape({});
  CHECK(config.nodes == was.nodes);
  CHECK(config.racks == std::vector<std::string>{"r1", "r3", "r1"});
}

TEST_CASE("earlier job: its journal serves the next leader") {
  MembershipWorld world(elected_plan(), written_by_c());
  world.comes(1, with_workers(world, "b"));
  JobRecord record = written_by_c().job;
  record.round = 8;
  JobJournal next = written_by_c();
  next.led = 0;
  next.drained = {};  // DrainedHosts adds them
  next.job = record;
  CHECK(world.membership.journal(record) == next);
}

TEST_CASE("earlier job: one that Slurm has requeued continues after its rounds") {
  Plan plan = membership_plan(3);
  plan.nodes.slurm_job = "12";
  plan.nodes.requeued = 1;
  JobJournal was = written_by_c();
  was.slurm_job = "12";
  was.job.restarts_used = 2;
  was.job.restarts_left = 1;
  MembershipWorld world(plan, was);
  CHECK(
      world.last_warning().starts_with("Slurm has started job 12 again: going on after round 7, "
                                       "2 of "));
  CHECK_FALSE(world.membership.awaits_earlier());
  CHECK(world.membership.first_round() == 8);
  REQUIRE(world.membership.shape({}).before);
  CHECK(world.membership.shape({}).before->restarts_used == 2);
  CHECK(world.membership.journal({}).requeued == 1);

  // Of another job, or of this very start.
  was.slurm_job = "11";
  CHECK(MembershipWorld(plan, was).membership.first_round() == 1);
  was.slurm_job = "12";
  was.requeued = 1;
  CHECK(MembershipWorld(plan, was).membership.first_round() == 1);
}
