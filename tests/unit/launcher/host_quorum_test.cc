#include "launcher/lead/start/host_quorum.h"

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

// Of four hosts; the first one leads, and has workers unless `leads_only`.
NodesPlan quorum_plan(int min, bool leads_only = false) {
  NodesPlan nodes;
  nodes.hosts.resize(4);
  nodes.min = min;
  nodes.rank = leads_only ? -1 : 0;
  return nodes;
}

}  // namespace

TEST_CASE("host quorum: without --nnodes MIN:MAX each host is needed") {
  HostQuorum quorum(quorum_plan(4));
  CHECK(quorum.enough_without({}));
  CHECK_FALSE(quorum.enough_without({2}));
}

TEST_CASE("host quorum: failures add up, and one of the same host counts once") {
  HostQuorum quorum(quorum_plan(2));
  CHECK(quorum.enough_without({1}));
  CHECK(quorum.enough_without({1, 2}));
  CHECK(quorum.enough_without({2}));
  CHECK_FALSE(quorum.enough_without({3}));
}

TEST_CASE("host quorum: the leader's own host is needed, if it is part of the job") {
  CHECK_FALSE(HostQuorum(quorum_plan(1)).enough_without({0}));
  CHECK(HostQuorum(quorum_plan(1, true)).enough_without({0}));
  HostQuorum quorum(quorum_plan(1));
  CHECK_FALSE(quorum.enough_without({0}));
  CHECK_FALSE(quorum.enough_without({1}));
}
