#include "elastic/node_roster.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

NodeRoster roster_of(int min_nodes, int max_nodes) {
  return {kStart, {.min_nodes = min_nodes, .max_nodes = max_nodes}, {0, "lead", 2}};
}

template <class Action>
const Action* only(const std::vector<NodeRoster::Action>& actions) {
  REQUIRE(actions.size() == 1);
  return std::get_if<Action>(&actions.front());
}

}  // namespace

TEST_CASE("the job begins when all hosts are there, numbered as they came") {
  NodeRoster roster = roster_of(3, 3);
  CHECK(roster.step(kStart, NodeRoster::Join{7, "b", -1, 2}).empty());
  CHECK(roster.who_is_here() == "2 of 3 hosts are here (lead, b)");
  CHECK(only<NodeRoster::Begin>(roster.step(kStart, NodeRoster::Join{9, "c", -1, 4})));
  CHECK(roster.node_of(7) == 1);
  CHECK(roster.node_of(9) == 2);
  CHECK_FALSE(roster.deadline());
  const auto late = roster.step(kStart, NodeRoster::Join{10, "d", -1, 2});
  CHECK(only<NodeRoster::Refuse>(late)->why == "all 3 hosts are here");
}

TEST_CASE("a job with only the leader's host waits for no other") {
  NodeRoster roster = roster_of(1, 1);
  CHECK(roster.deadline() == kStart);
  CHECK(only<NodeRoster::Begin>(roster.step(kStart, NodeRoster::Clock{})));
}

TEST_CASE("a requested number is kept, and refused if it is taken or too high") {
  NodeRoster roster = roster_of(3, 3);
  CHECK(roster.step(kStart, NodeRoster::Join{7, "b", 2, 2}).empty());
  CHECK(only<NodeRoster::Refuse>(roster.step(kStart, NodeRoster::Join{8, "c", 2, 2}))->why ==
        "node rank 2 is host b");
  CHECK(only<NodeRoster::Refuse>(roster.step(kStart, NodeRoster::Join{8, "c", 0, 2}))->why ==
        "node rank 0 is host lead");
  CHECK(only<NodeRoster::Refuse>(roster.step(kStart, NodeRoster::Join{8, "c", 3, 2})));
  CHECK(only<NodeRoster::Begin>(roster.step(kStart, NodeRoster::Join{9, "c", -1, 2})));
  CHECK(roster.node_of(9) == 1);
}

TEST_CASE("the one that leads may be any node, or none") {
  const NodeRoster::Config config{.min_nodes = 2, .max_nodes = 2};
  NodeRoster second(kStart, config, {0, "lead", 2}, 1);
  CHECK(only<NodeRoster::Refuse>(second.step(kStart, NodeRoster::Join{7, "lead", 1, 2}))->why ==
        "node rank 1 is host lead");
  CHECK(only<NodeRoster::Begin>(second.step(kStart, NodeRoster::Join{8, "b", 0, 4})));
  CHECK((second.nodes()[0].nproc == 4 && second.nodes()[1].nproc == 2));
  NodeRoster none(kStart, config, {0, "lead", 0}, -1);
  CHECK(none.who_is_here() == "0 of 2 hosts are here");
  CHECK(none.step(kStart, NodeRoster::Join{7, "b", 1, 2}).empty());
  CHECK(only<NodeRoster::Begin>(none.step(kStart, NodeRoster::Join{8, "a", 0, 2})));
}

TEST_CASE("a host that leaves before the begin does not count") {
  NodeRoster roster = roster_of(2, 2);
  NodeRoster three = roster_of(3, 3);
  CHECK(three.step(kStart, NodeRoster::Join{7, "b", -1, 2}).empty());
  CHECK(three.step(kStart, NodeRoster::Gone{7}).empty());
  CHECK(three.step(kStart, NodeRoster::Join{8, "c", -1, 2}).empty());
  CHECK(three.node_of(8) == 1);
}

TEST_CASE("with the least number of hosts it waits a while for more") {
  NodeRoster roster = roster_of(2, 4);
  CHECK(roster.deadline() == kStart + 600s);
  CHECK(roster.step(kStart + 5s, NodeRoster::Join{7, "b", -1, 2}).empty());
  CHECK(roster.deadline() == kStart + 8s);
  CHECK(roster.step(kStart + 7s, NodeRoster::Join{8, "c", -1, 2}).empty());
  CHECK(roster.step(kStart + 8s, NodeRoster::Clock{}).empty());
  CHECK(only<NodeRoster::Begin>(roster.step(kStart + 10s, NodeRoster::Clock{})));
  CHECK(only<NodeRoster::Back>(roster.step(kStart + 20s, NodeRoster::Join{9, "d", -1, 2}))->node ==
        3);
}

TEST_CASE("with too few hosts it gives up, and names those that were there") {
  NodeRoster roster = roster_of(3, 4);
  const auto actions = roster.step(kStart + 600s, NodeRoster::Clock{});
  CHECK(only<NodeRoster::GiveUp>(actions)->why ==
        "1 of 4 hosts are here (lead) after 600 s, and 3 are needed");
  CHECK_FALSE(roster.deadline());
}

TEST_CASE("with enough hosts the job begins, also if the last one came just before the time-out") {
  NodeRoster roster = roster_of(2, 4);
  CHECK(roster.step(kStart + 599s, NodeRoster::Join{7, "b", -1, 2}).empty());
  CHECK(roster.deadline() == kStart + 600s);
  CHECK(only<NodeRoster::Begin>(roster.step(kStart + 600s, NodeRoster::Clock{})));
}

TEST_CASE("a host that comes back has the number it had") {
  NodeRoster roster = roster_of(3, 3);
  (void)roster.step(kStart, NodeRoster::Join{7, "b", -1, 2});
  (void)roster.step(kStart, NodeRoster::Join{8, "c", -1, 2});
  CHECK(only<NodeRoster::Lost>(roster.step(kStart, NodeRoster::Gone{7}))->node == 1);
  CHECK(only<NodeRoster::Lost>(roster.step(kStart, NodeRoster::Gone{8}))->node == 2);
  CHECK(only<NodeRoster::Back>(roster.step(kStart, NodeRoster::Join{9, "c", -1, 2}))->node == 2);
  // Another host may stand in, with as many workers.
  CHECK(only<NodeRoster::Refuse>(roster.step(kStart, NodeRoster::Join{10, "d", 1, 3})));
  CHECK(only<NodeRoster::Back>(roster.step(kStart, NodeRoster::Join{11, "d", -1, 2}))->node == 1);
}

TEST_CASE("a substitute host takes the place of a host with as many workers") {
  NodeRoster roster = roster_of(3, 3);
  (void)roster.step(kStart, NodeRoster::Join{7, "b", -1, 2});
  (void)roster.step(kStart, NodeRoster::Join{8, "c", -1, 4});
  for (const NodeRoster::Link link : {7, 8}) (void)roster.step(kStart, NodeRoster::Gone{link});
  CHECK(only<NodeRoster::Back>(roster.step(kStart, NodeRoster::Join{9, "d", -1, 4}))->node == 2);
}

TEST_CASE("a host that restarts before its loss was noticed takes its own place") {
  NodeRoster roster = roster_of(2, 2);
  (void)roster.step(kStart, NodeRoster::Join{7, "b", 1, 2});
  const auto actions = roster.step(kStart, NodeRoster::Join{8, "b", 1, 2});
  REQUIRE(actions.size() == 3);
  CHECK(std::get<NodeRoster::Lost>(actions[0]).node == 1);
  CHECK(std::get<NodeRoster::Refuse>(actions[1]).link == 7);
  CHECK(std::get<NodeRoster::Refuse>(actions[1]).why ==
        "a later connection of host b has taken its place");
  CHECK(std::get<NodeRoster::Back>(actions[2]).node == 1);
  CHECK(roster.node_of(8) == 1);
  CHECK(roster.step(kStart, NodeRoster::Gone{7}).empty());
}

TEST_CASE("also before the begin, each place has one dlaunch") {
  NodeRoster roster = roster_of(3, 3);
  CHECK(roster.step(kStart, NodeRoster::Join{7, "b", 1, 2}).empty());
  // It may have another number of workers now.
  CHECK(only<NodeRoster::Refuse>(roster.step(kStart, NodeRoster::Join{8, "b", 1, 3}))->link == 7);
  CHECK(roster.step(kStart, NodeRoster::Gone{7}).empty());
  CHECK(only<NodeRoster::Begin>(roster.step(kStart, NodeRoster::Join{9, "c", 2, 2})));
  CHECK(roster.node_of(8) == 1);
}

TEST_CASE("a node keeps the rack of its host, also while that is lost, and gets that of the next") {
  NodeRoster roster = roster_of(2, 2);
  CHECK(only<NodeRoster::Begin>(roster.step(kStart, NodeRoster::Join{7, "b", 1, 2, "s0.s1"})));
  CHECK(roster.nodes()[1].rack == "s0.s1");
  CHECK(only<NodeRoster::Lost>(roster.step(kStart, NodeRoster::Gone{7})));
  CHECK(roster.nodes()[1].rack == "s0.s1");
  CHECK(only<NodeRoster::Back>(roster.step(kStart, NodeRoster::Join{8, "c", 1, 2, "s2"})));
  CHECK(roster.nodes()[1].rack == "s2");
}

TEST_CASE("a new leader waits for the earlier hosts, except the one that led") {
  const std::vector<NodeRoster::Node> was{{1, "a", 2}, {2, "b", 1}, {3, "c", 2}, {0, "", 0}};
  const NodeRoster::Config config{.min_nodes = 2, .max_nodes = 4};
  NodeRoster roster(kStart, config, was, 0);
  CHECK(roster.who_is_here() == "0 of 4 hosts are here");
  CHECK(roster.step(kStart, NodeRoster::Join{7, "c", 2, 2}).empty());
  CHECK(only<NodeRoster::Refuse>(roster.step(kStart, NodeRoster::Join{8, "b", 1, 3})));
  CHECK(only<NodeRoster::Begin>(roster.step(kStart, NodeRoster::Join{9, "b", -1, 1})));
  CHECK(roster.node_of(9) == 1);
  CHECK(only<NodeRoster::Back>(roster.step(kStart, NodeRoster::Join{10, "a", -1, 2}))->node == 0);
}

TEST_CASE("a leader that is started again is there, and the others are waited for") {
  const std::vector<NodeRoster::Node> was{{1, "a", 2}, {0, "b", 2}, {3, "c", 2}};
  NodeRoster roster(kStart, {.min_nodes = 1, .max_nodes = 3}, was, 1, 1);
  CHECK(roster.own_number() == 1);
  CHECK(roster.who_is_here() == "1 of 3 hosts are here (b)");
  CHECK(only<NodeRoster::Refuse>(roster.step(kStart, NodeRoster::Join{7, "b", 1, 2})));
  CHECK(roster.step(kStart, NodeRoster::Join{8, "a", 0, 2}).empty());
  CHECK(only<NodeRoster::Begin>(roster.step(kStart, NodeRoster::Join{9, "c", 2, 2})));
}

TEST_CASE("a new leader does not wait long for a host that does not come") {
  const std::vector<NodeRoster::Node> was{{1, "a", 2}, {2, "b", 2}, {3, "c", 2}};
  NodeRoster roster(kStart, {.min_nodes = 1, .max_nodes = 3}, was, 0);
  CHECK(roster.step(kStart + 1s, NodeRoster::Join{7, "c", 2, 2}).empty());
  CHECK(roster.deadline() == kStart + 3s);
  CHECK(roster.step(kStart + 1s, NodeRoster::Gone{7}).empty());
  CHECK(roster.step(kStart + 2s, NodeRoster::Join{8, "c", 2, 2}).empty());
  CHECK(only<NodeRoster::Begin>(roster.step(kStart + 3s, NodeRoster::Clock{})));
  CHECK(roster.node_of(8) == 2);
}
