#include "launcher/lead/membership/drained_hosts.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/unit/launcher/membership_world.h"

namespace dlaunch {
namespace {

using Words = std::vector<std::string>;

// A job of two workers on each of the hosts a, b and c, that goes on with two hosts. Host a leads;
// once elected, its node is another process.
struct Drain {
  explicit Drain(bool starts_hosts = false, bool elected = false)
      : world(plan_of(elected)),
        hosts(world.membership,
              {.least = 2,
               .feed = [this](const JobCore::Event& event) { world.events.push_back(event); },
               .nobody_on = [this](int node) { return empty.contains(node); },
               .starts_hosts = [=] { return starts_hosts; },
               .listed_as = [](int node) { return fmt::format("listed{}", node); },
               .take_out =
                   [this](int node, bool out) {
                     told.push_back(fmt::format("{} {}", out ? "out" : "back", node));
                   },
               .write_down = [this] { ++written; }}) {
    if (elected) world.comes(3, "a");
    world.comes(1, "b");
    world.comes(2, "c");
  }
  static Plan plan_of(bool elected) {
    Plan plan = membership_plan(3);
    if (elected) plan.nodes.folder = "/shared";
    plan.nodes.leads_only = elected;
    return plan;
  }
  void toggle(int node) { hosts.drain(hosts.all().at(static_cast<std::size_t>(node))); }

  MembershipWorld world;
  std::set<int> empty;  // nodes without workers
  Words told;           // the one who starts hosts
  int written = 0;
  DrainedHosts hosts;
};

TEST_CASE("drained hosts: a host leaves once its workers have left") {
  Drain job;
  job.toggle(1);
  CHECK(job.world.last_event<JobCore::NodeDrain>()->node == 1);
  CHECK(job.written == 1);
  CHECK(job.hosts.in_words() == Words{"b: draining; its workers leave"});
  job.hosts.let_go();
  CHECK(job.world.open.contains(1));
  job.empty = {1};
  job.hosts.let_go();
  CHECK(job.hosts.in_words() == Words{"b: drained"});
  CHECK(job.hosts.journal().at(0).left);
  CHECK(job.written == 2);
  CHECK(job.world.got<NodeFinish>(1)->exit_code == 0);
  job.hosts.let_go();
  CHECK(job.written == 2);
}

TEST_CASE("drained hosts: one that is still here comes back at once") {
  Drain job;
  job.toggle(2);
  job.toggle(2);
  CHECK(job.world.last_event<JobCore::NodeBack>()->node == 2);
  CHECK(job.hosts.in_words().empty());
  CHECK(job.told.empty());
}

TEST_CASE("drained hosts: who starts the hosts takes them out and back, but not its own") {
  Drain job(true);
  CHECK(job.hosts.all().at(1).listed_as == "listed1");
  job.toggle(1);
  job.toggle(0);
  CHECK(job.told == Words{"out 1"});
  job.empty = {0, 1};
  job.hosts.let_go();  // the starter ends b's dlaunch, and ours goes on leading
  CHECK(job.world.open.contains(1));
  job.toggle(1);
  CHECK(job.told == Words{"out 1", "back 1"});
}

TEST_CASE("drained hosts: a pod may leave while enough hosts stay, and exits with 143") {
  Drain job;
  CHECK(job.hosts.leave(1));
  CHECK(job.hosts.leave(1));
  CHECK_FALSE(job.hosts.leave(2));
  job.empty = {1};
  job.hosts.let_go();
  CHECK(job.world.got<NodeFinish>(1)->exit_code == 143);
}

TEST_CASE("drained hosts: an elected leader keeps the agent of its host") {
  Drain job(false, true);
  REQUIRE(job.hosts.all().at(0).name == "a");
  job.toggle(0);
  job.toggle(1);
  job.empty = {0, 1};
  job.hosts.let_go();
  CHECK_FALSE(job.world.got<NodeFinish>(3));
  CHECK(job.world.got<NodeFinish>(1));
  CHECK(job.hosts.in_words() == Words{"a: drained", "b: drained"});
}

TEST_CASE("drained hosts: an elected leader counts the agent of its host once") {
  Drain job(false, true);
  CHECK(job.hosts.leave(1));
  CHECK_FALSE(job.hosts.leave(2));
}

}  // namespace
}  // namespace dlaunch
