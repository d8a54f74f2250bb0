// --topology and --rack in plans.
#include <doctest/doctest.h>

#include "cli/ssh_order.h"
#include "tests/unit/cli/fake_machine.h"
#include "tests/unit/cli/scoped_env.h"

using namespace dlaunch;

namespace {

FakeMachine machine_with_racks() {
  FakeMachine fake;
  fake.files["t"] =
      "SwitchName=s1 Nodes=here,b\nSwitchName=s2 Nodes=a\nSwitchName=s0 Switches=s[1-2]\n";
  fake.files["loop"] = "SwitchName=s0 Switches=s0\n";
  return fake;
}

const Words kByHand = {"--nnodes", "2", "--rdzv", "tcp://here:7", "--secret-file", "secret"};
Words racks_and(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  words.emplace_back("p");
  return words;
}

Options order_of(const Plan& plan) {
  const auto order = decode_ssh_order(plan.nodes.order);
  REQUIRE(order);
  return order->options;
}

}  // namespace

TEST_CASE("topology: the leader reads the file, and no host that follows") {
  FakeMachine fake = machine_with_racks();
  const Plan started = fake.plan({"-H", "here,a,b", "--topology", "t", "p"});
  CHECK(started.nodes.topology == "t");
  CHECK(started.nodes.racks.at("a") == "s0.s2");
  CHECK(started.nodes.rack.empty());
  CHECK_FALSE(order_of(started).topology);
  CHECK(fake.plan(racks_and(kByHand, {"--topology", "t"})).nodes.racks.size() == 3);
  const Words follows = {"--nnodes", "2", "--rdzv", "far", "--topology", "absent", "p"};
  CHECK(fake.plan(follows).nodes.topology.empty());
  const Words second = {"--node-rank", "1", "--topology", "absent"};
  CHECK(fake.plan(racks_and(kByHand, second)).nodes.racks.empty());
}

TEST_CASE("topology: a file that cannot be read or understood is a wrong command line") {
  FakeMachine fake = machine_with_racks();
  CHECK(fake.refused({"-H", "here,a", "--topology", "absent", "p"}) ==
        "64 --topology: read absent: No such file or directory");
  CHECK(fake.refused({"-H", "here,a", "--topology", "loop", "p"}) ==
        "64 loop:1: switch s0 is below itself: s0.s0");
}

TEST_CASE("topology: hosts that elect their leader need the same file") {
  FakeMachine fake = machine_with_racks();
  fake.files["same"] = "# moved\n" + fake.files["t"];
  fake.files["other"] = fake.files["t"] + "SwitchName=s3 Nodes=c\n";
  const Words elected = {"--nnodes", "2", "--rdzv", "file:///shared", "--secret-file", "secret"};
  const auto agreed = [&](const Words& base, const Words& more) {
    return what_must_agree(fake.plan(racks_and(base, more)));
  };
  const std::string words = agreed(elected, {"--topology", "t"});
  CHECK(words.find(", --topology of 3 hosts (") != std::string::npos);
  CHECK(words == agreed(elected, {"--topology", "same"}));
  CHECK(words != agreed(elected, {"--topology", "other"}));
  CHECK(words != agreed(elected, {}));
  CHECK(agreed(elected, {"--rack", "r"}) == agreed(elected, {}));
  CHECK(agreed(kByHand, {"--topology", "t"}) == agreed(kByHand, {}));
}

TEST_CASE("topology: Slurm gives each host its address") {
  FakeMachine fake;
  fake.env["SLURM_TOPOLOGY_ADDR"] = "s0.s1.here";
  const Plan plan = fake.plan(racks_and(kByHand, {"--topology", "slurm"}));
  CHECK(plan.nodes.rack == "s0.s1");
  CHECK(plan.nodes.racks.empty());
  CHECK(fake.plan(racks_and(kByHand, {"--topology", "slurm", "--rack", "r"})).nodes.rack == "r");
  fake.env["SLURM_TOPOLOGY_ADDR"] = "s0.s1.here.example.org";
  fake.env["SLURM_TOPOLOGY_ADDR_PATTERN"] = "switch.switch.node";
  CHECK(fake.plan(racks_and(kByHand, {"--topology", "slurm"})).nodes.rack == "s0.s1");
  fake.env["SLURM_TOPOLOGY_ADDR"] = "here";
  fake.env["SLURM_TOPOLOGY_ADDR_PATTERN"] = "node";
  CHECK(fake.refused(racks_and(kByHand, {"--topology", "slurm"})) ==
        "64 --topology slurm: SLURM_TOPOLOGY_ADDR of host here is 'here', which names no switch");
  fake.env.clear();
  CHECK(fake.refused(racks_and(kByHand, {"--topology", "slurm"})) ==
        "64 --topology slurm: host here has no SLURM_TOPOLOGY_ADDR, which Slurm sets with "
        "topology/tree for batch scripts and for what srun starts");
  CHECK(fake.plan(racks_and(kByHand, {"--topology", "slurm", "--rack", "r"})).nodes.rack == "r");
}

TEST_CASE("topology: in a job of Slurm, srun gives the address to each host that it starts") {
  FakeMachine fake;
  fake.env = {{"SLURM_JOB_ID", "7"},
              {"SLURM_JOB_NODELIST", "there[1-2]"},
              {"SLURM_TASKS_PER_NODE", "1(x2)"},
              {"SLURM_JOB_CPUS_PER_NODE", "4(x2)"},
              {"SLURM_TOPOLOGY_ADDR", "s0.s1.here"}};
  const Plan salloc = fake.plan({"--topology", "slurm", "p"});
  CHECK(salloc.nodes.rack.empty());  // no worker is here
  CHECK(salloc.nodes.topology == "slurm");
  const Options order = order_of(salloc);
  CHECK(*order.topology == "slurm");
  NodesPlan nodes;
  nodes.max = nodes.min = 2;
  nodes.rank = 1;
  nodes.lead = NodesPlan::Lead::no;
  nodes.starter = Starter::srun;
  const auto there = build_plan(order, fake.machine(), &nodes);
  REQUIRE(there);
  CHECK(there->plan.nodes.rack == "s0.s1");
  CHECK(fake.refused({"--topology", "slurm", "--ssh-command", "ssh", "p"}) ==
        "64 --topology slurm: ssh starts the hosts, and Slurm gives SLURM_TOPOLOGY_ADDR only to "
        "hosts that srun starts");
}

TEST_CASE("rack: of a host that is started by hand") {
  FakeMachine fake;
  CHECK(fake.plan(racks_and(kByHand, {"--rack", "room1.rack7"})).nodes.rack == "room1.rack7");
  CHECK(fake.refused(racks_and(kByHand, {"--rack", "a b"})) ==
        "64 --rack: 'a b' is not a name, or names with dots between them");
  CHECK(
      fake.refused(racks_and(kByHand, {"--rack", "a..b"})).starts_with("64 --rack: 'a..b' is not"));
  CHECK(fake.refused({"-H", "here,a", "--rack", "r", "p"})
            .starts_with("64 --rack is for hosts that are started one by one: "));
  const ScopedEnv rack("DLAUNCH_RACK", "r9");
  CHECK(fake.plan(racks_and(kByHand, {})).nodes.rack == "r9");
  const Plan started = fake.plan({"-H", "here,a", "p"});
  CHECK(started.nodes.rack.empty());
  CHECK_FALSE(order_of(started).rack);
}

TEST_CASE("topology and rack have no effect on one host") {
  FakeMachine fake = machine_with_racks();
  CHECK(fake.refused({"--topology", "t", "p"}) == "64 --topology has no effect on one host");
  CHECK(fake.plan({"--topology", "slurm", "p"}).nodes.topology.empty());  // one script for any -N
  CHECK(fake.refused({"-H", "a", "--topology", "t", "p"}) ==
        "64 --topology has no effect on one host");
  CHECK(fake.refused({"--rack", "r", "p"}) == "64 --rack has no effect on one host");
  const ScopedEnv topology("DLAUNCH_TOPOLOGY", "absent"), rack("DLAUNCH_RACK", "a b");
  CHECK(fake.plan({"p"}).nodes.rack.empty());
  const auto emitted = read_options({"--emit", "kubernetes", "--image", "i", "p"});
  REQUIRE(emitted);
  CHECK((!emitted->topology && !emitted->rack));
}
