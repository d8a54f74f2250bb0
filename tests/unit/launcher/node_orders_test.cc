// The slots of a job, and its orders as messages to its nodes.
#include "launcher/lead/membership/node_orders.h"

#include <csignal>

#include <doctest/doctest.h>

#include "launcher/lead/membership/job_slots.h"
#include "tests/unit/start.h"

using namespace dlaunch;

namespace {

// On two hosts with two workers each and a spare on the first; a third host may come.
JobSlots slots_of_three() {
  Plan plan;
  plan.nproc = 2;
  plan.spares = 1;
  return JobSlots::lay_out({{0, "a", 2}, {1, "b", 2}, {NodeRoster::kNone, "", 0}}, plan);
}

std::vector<NodeAddresses> addresses_of_three() {
  return {{{"10.0.0.1", 100}, {11, 12}}, {{"10.0.0.2", 200}, {21, 22}}, {}};
}

JobCore job_on(const JobSlots& slots, int spares) {
  JobConfig config{.size = slots.size(), .max_size = slots.size(), .spares = spares};
  config.nodes = slots.nodes();
  config.max_size = static_cast<int>(config.nodes.size()) - spares;
  return JobCore(config);
}

// Of a step, the one order to start.
JobCore::StartWorkers start_in(const std::vector<JobCore::Action>& actions) {
  for (const auto& action : actions) {
    if (const auto* start = std::get_if<JobCore::StartWorkers>(&action)) return *start;
  }
  FAIL("nothing starts");
  return {};
}

}  // namespace

TEST_CASE("job slots: workers by node, then a spare on each in turn, then hosts to come") {
  const JobSlots slots = slots_of_three();
  CHECK(slots.size() == 4);
  CHECK(slots.nodes() == std::vector<int>{0, 0, 1, 1, 0, 2, 2});
  CHECK(slots.count_on(0) == 3);
  CHECK(slots.count_on(2) == 2);
  CHECK((slots.home(4).node == 0 && slots.home(4).slot == 2));
  CHECK(slots.slot_of(0, 2) == 4);
  CHECK(slots.slot_of(2, 1) == 6);
  CHECK(slots.slot_of(2, 2) == -1);
  CHECK(slots.slot_of(3, 0) == -1);

  Plan more;
  more.spares = 3;
  CHECK(JobSlots::lay_out({{0, "a", 1}, {1, "b", 1}}, more).nodes() ==
        std::vector<int>{0, 1, 0, 1, 0});
}

TEST_CASE(
    "job slots: on one host the job may grow there, and started hosts have their own numbers") {
  Plan plan;
  plan.max_nproc = 4;
  CHECK(JobSlots::lay_out({{0, "a", 3}}, plan).nodes() == std::vector<int>{0, 0, 0, 0});
  CHECK(JobSlots::lay_out({{0, "a", 5}}, plan).nodes().size() == 5);
  plan.nodes.hosts = {{.name = "a", .nproc = 1}, {.name = "b", .nproc = 3}};
  CHECK(JobSlots::lay_out({{0, "a", 1}, {NodeRoster::kNone, "", 0}}, plan).nodes() ==
        std::vector<int>{0, 1, 1, 1});
}

TEST_CASE("job slots: the nodes of one rack stand together, with their spares in that order") {
  Plan plan;
  plan.nproc = 2;
  plan.spares = 3;
  const std::vector<NodeRoster::Node> nodes = {{0, "a", 2, "s0.s1"},
                                               {1, "b", 1, "s0.s2"},
                                               {NodeRoster::kNone, "", 0},
                                               {3, "d", 2, "s0.s1"},
                                               {4, "e", 1}};
  const JobSlots slots = JobSlots::lay_out(nodes, plan);
  CHECK(slots.size() == 6);
  CHECK(slots.nodes() == std::vector<int>{0, 0, 3, 3, 1, 4, 0, 3, 1, 2, 2});
  CHECK(slots.slot_of(3, 0) == 2);
  CHECK(slots.slot_of(1, 0) == 4);
  CHECK((slots.home(3).node == 3 && slots.home(3).slot == 1));
  // The first host that is there stays the first.
  CHECK(JobSlots::lay_out({{NodeRoster::kNone, "", 0}, {1, "b", 1}, {2, "c", 1, "r"}}, Plan())
            .nodes() == std::vector<int>{1, 2, 0});
}

TEST_CASE("job slots: a journal has the nodes only, and gives the same homes") {
  const JobSlots before = slots_of_three(), after(before.nodes(), before.size());
  CHECK(after.size() == 4);
  for (Slot slot = 0; slot < 7; ++slot) {
    CHECK(after.home(slot).node == before.home(slot).node);
    CHECK(after.home(slot).slot == before.home(slot).slot);
  }
}

TEST_CASE("node orders: each node with workers learns its places, and all addresses") {
  const JobSlots slots = slots_of_three();
  JobCore job = job_on(slots, 1);
  (void)job.step(kStart, JobCore::NodeLost{2});
  const auto start = start_in(job.step(kStart, JobCore::Start{}));
  const auto all = orders(start, job, slots, addresses_of_three());
  REQUIRE(all.size() == 2);
  CHECK((all[0].node == 0 && all[1].node == 1));
  const auto& a = std::get<NodeStart>(all[0].message);
  const auto& b = std::get<NodeStart>(all[1].message);
  CHECK((a.round == start.round && a.size == 4 && a.nodes == 2 && a.one_world));
  CHECK((a.local_size == 2 && a.node_rank == 0));
  CHECK((b.local_size == 2 && b.node_rank == 1));
  CHECK((b.master_addr == "10.0.0.1" && b.master_port == 100));
  CHECK(b.peers ==
        std::vector<std::string>{"10.0.0.1:11", "10.0.0.1:12", "10.0.0.2:21", "10.0.0.2:22"});
  CHECK(a.places.size() == 2);
  REQUIRE(b.places.size() == 2);
  CHECK((b.places[1].slot == 1 && b.places[1].rank == 3 && b.places[1].local_rank == 1));
}

TEST_CASE("node orders: nodes are numbered by their lowest ranks") {
  const JobSlots slots =
      JobSlots::lay_out({{0, "a", 2, "r"}, {1, "b", 2, "s"}, {2, "c", 2, "r"}}, Plan());
  JobCore job = job_on(slots, 0);
  const auto start = start_in(job.step(kStart, JobCore::Start{}));
  const std::vector<NodeAddresses> addresses = {{{"10.0.0.1", 100}, {11, 12}, "r"},
                                                {{"10.0.0.2", 200}, {21, 22}, "s"},
                                                {{"10.0.0.3", 300}, {31, 32}, "r"}};
  const auto all = orders(start, job, slots, addresses);
  REQUIRE(all.size() == 3);
  const auto rack_in = [&](int i) { return std::get<NodeStart>(all[i].message).rack; };
  CHECK((rack_in(0) == "r" && rack_in(1) == "s" && rack_in(2) == "r"));
  const auto& b = std::get<NodeStart>(all[1].message);
  const auto& c = std::get<NodeStart>(all[2].message);
  CHECK(std::get<NodeStart>(all[0].message).node_rank == 0);
  CHECK((all[1].node == 1 && b.node_rank == 2 && b.nodes == 3));
  CHECK((all[2].node == 2 && c.node_rank == 1 && c.master_addr == "10.0.0.1"));
  CHECK((c.places[0].rank == 2 && c.places[0].local_rank == 0 && c.places[1].local_rank == 1));
  CHECK((b.places[0].rank == 4 && b.places[1].rank == 5));
  CHECK(b.peers == std::vector<std::string>{"10.0.0.1:11", "10.0.0.1:12", "10.0.0.3:31",
                                            "10.0.0.3:32", "10.0.0.2:21", "10.0.0.2:22"});
}

TEST_CASE("node orders: a node that has only spares is numbered behind the others") {
  const JobSlots slots({0, 1, 2, 2, 0}, 2);
  JobConfig config{.size = 2, .min_size = 2, .max_size = 2, .spares = 3};
  config.nodes = slots.nodes();
  config.restarts.limit.restarts = 1;
  JobCore job(config);
  (void)job.step(kStart, JobCore::Start{});
  for (Slot slot = 0; slot < 5; ++slot) {
    (void)job.step(kStart, JobCore::Spawned{slot});
    (void)job.step(kStart, JobCore::Ready{slot, 0});
  }
  (void)job.step(kStart, JobCore::NodeLost{0});
  REQUIRE(job.rank_of(2) == 0);  // node 2 has the lowest rank now
  const JobCore::StartWorkers again{.round = 2, .places = {{1, 1}, {3, -1}, {4, -1}}, .all = false};
  const auto all = orders(again, job, slots,
                          {{{"10.0.0.1", 1}, {}}, {{"10.0.0.2", 2}, {}}, {{"10.0.0.3", 3}, {}}});
  REQUIRE(all.size() == 3);
  CHECK(std::get<NodeStart>(all[0].message).node_rank == 2);
  CHECK(std::get<NodeStart>(all[1].message).node_rank == 1);
  CHECK(std::get<NodeStart>(all[2].message).node_rank == 0);
  CHECK(std::get<NodeStart>(all[2].message).master_addr == "10.0.0.3");
}

TEST_CASE("node orders: a worker that starts again keeps its local rank, and a spare has none") {
  const JobSlots slots = slots_of_three();
  JobCore job = job_on(slots, 1);
  (void)job.step(kStart, JobCore::Start{});
  const JobCore::StartWorkers one{.round = 2, .places = {{3, 3}}, .all = false};
  const JobCore::StartWorkers spare{.round = 2, .places = {{4, -1}}, .all = false};
  auto addresses = addresses_of_three();
  addresses[1].ports = {21};
  const auto all = orders(one, job, slots, addresses);
  REQUIRE(all.size() == 1);
  CHECK(all[0].node == 1);
  const auto& start = std::get<NodeStart>(all[0].message);
  CHECK_FALSE(start.one_world);
  CHECK((start.places[0].slot == 1 && start.places[0].local_rank == 1));
  CHECK((start.local_size == 2 && start.node_rank == 1));
  CHECK(start.peers.empty());  // rank 3 has no port
  const auto spares = orders(spare, job, slots, addresses);
  REQUIRE(spares.size() == 1);
  const NodePlace place = std::get<NodeStart>(spares[0].message).places[0];
  CHECK((place.slot == 2 && place.rank == -1 && place.local_rank == -1));
}

TEST_CASE("node orders: a stop and a round name each node's own slots") {
  const JobSlots slots = slots_of_three();
  const auto stops = orders(JobCore::StopWorkers{.slots = {4, 2, 0}, .signal = SIGTERM}, slots);
  REQUIRE(stops.size() == 2);
  CHECK((stops[0].node == 0 && stops[1].node == 1));
  CHECK(std::get<NodeStop>(stops[0].message).slots == std::vector<Slot>{2, 0});
  CHECK(std::get<NodeStop>(stops[1].message).slots == std::vector<Slot>{0});
  CHECK(std::get<NodeStop>(stops[1].message).signal == SIGTERM);

  const auto round = orders(JobCore::Announce{.round = 5, .slots = {3, 4}}, slots);
  REQUIRE(round.size() == 2);
  const auto& a = std::get<NodeAnnounce>(round[0].message);
  CHECK((a.round == 5 && a.size == 2));
  REQUIRE(a.places.size() == 1);
  CHECK((a.places[0].slot == 2 && a.places[0].rank == 1 && a.places[0].local_rank == -1));
  CHECK(std::get<NodeAnnounce>(round[1].message).places[0].rank == 0);
}
