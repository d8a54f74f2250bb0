#include "launcher/plan/host_racks.h"

#include <doctest/doctest.h>

#include "elastic/rack_order.h"

using namespace dlaunch;

namespace {

HostRacks read(std::string_view text) {
  auto racks = parse_topology(text, "t");
  REQUIRE_MESSAGE(racks, (racks ? "" : racks.error().what));
  return *racks;
}

std::string refusal_of(std::string_view text) {
  const auto racks = parse_topology(text, "t");
  REQUIRE_FALSE(racks);
  CHECK(racks.error().code == Errc::usage);
  CHECK(racks.error().what.find('\n') == std::string::npos);
  return racks.error().what;
}

}  // namespace

TEST_CASE("topology: a host's rack is the switches above it, from the top") {
  const auto racks = read(
      "# Slurm's own example, and more\n"
      "\n"
      "SwitchName=s0 Nodes=dev[0-5]   # a leaf\n"
      "switchname=s1\tNODES=dev-[06-08,11],login LinkSpeed=1000\r\n"
      "SwitchName=s2 Switches=s[0-1] Foo=a=b\n"
      "SwitchName=alone Nodes=x");
  CHECK(racks.size() == 12);
  CHECK(racks.at("dev0") == "s2.s0");
  CHECK(racks.at("dev-07") == "s2.s1");
  CHECK(racks.at("dev-11") == "s2.s1");
  CHECK(racks.at("login") == "s2.s1");
  CHECK(racks.at("x") == "alone");
  CHECK_FALSE(racks.contains("dev-09"));
}

TEST_CASE("topology: three levels in any order, and lines that continue") {
  const auto racks = read(
      "SwitchName=top Switches=room1,room2\n"
      "# a comment does not continue \\\n"
      "SwitchName=rack1 \\ # but this line does\n"
      "  Nodes=a,\\ \r\n"
      "b\r\n"
      "SwitchName=room1 Switches=rack1 Nodes=c\n"
      "SwitchName=room2 Nodes=d\n");
  CHECK(racks.at("a") == "top.room1.rack1");
  CHECK(racks.at("c") == "top.room1");
  CHECK(racks.at("d") == "top.room2");
}

TEST_CASE("topology: each mistake is one clear line") {
  CHECK(refusal_of("") == "t:1: this file names no switch");
  CHECK(refusal_of("# only\n\n") == "t:1: this file names no switch");
  CHECK(refusal_of("\nSwitchName=s0 Nodes=a\nSwitchName=s0 Nodes=b\n") ==
        "t:3: switch s0 is already in line 2");
  CHECK(refusal_of("SwitchName=s0 \\\nNodes=a\nfoo\n") == "t:3: 'foo' is not KEY=VALUE");
  CHECK(refusal_of("Nodes=a\n") == "t:1: there is no SwitchName=NAME");
  CHECK(refusal_of("SwitchName= Nodes=a\n") == "t:1: there is no SwitchName=NAME");
  CHECK(refusal_of("SwitchName=a..b Nodes=a\n") == "t:1: 'a..b' is not the name of a switch");
  CHECK(refusal_of("SwitchName=s0 LinkSpeed=9\n") ==
        "t:1: switch s0 has neither Nodes= nor Switches=");
  CHECK(refusal_of("SwitchName=s0 Nodes=a[1-\n").starts_with("t:1: nodes: "));
  CHECK(refusal_of("SwitchName=s0 Nodes=a:2\n") == "t:1: nodes: 'a:2' is not a name");
  CHECK(refusal_of("SwitchName=s0 Nodes=\n") == "t:1: nodes: '' is not a name");
  CHECK(refusal_of("SwitchName=s0 Nodes=a,b\nSwitchName=s1 Nodes=c,b\n") ==
        "t:2: node b is already below s0");
  CHECK(refusal_of("SwitchName=s0 Nodes=a,a\n") == "t:1: node a is already below s0");
  CHECK(refusal_of("SwitchName=s0 Switches=s1\n") == "t:1: switch s1 has no line of its own");
  CHECK(refusal_of("SwitchName=s1 Nodes=a\nSwitchName=s0 Switches=s1\nSwitchName=s2 "
                   "Switches=s1\n") == "t:3: switch s1 is already below s0, in line 2");
}

TEST_CASE("topology: a loop of switches is refused, and so is a tower of them") {
  CHECK(refusal_of("SwitchName=s0 Switches=s0\n") == "t:1: switch s0 is below itself: s0.s0");
  CHECK(refusal_of("SwitchName=x Nodes=a\nSwitchName=s0 Switches=s1\nSwitchName=s1 "
                   "Switches=s0,x\n")
            .starts_with("t:1: switch x has more than 16 switches above it, or is below a loop"));
  CHECK(refusal_of("SwitchName=s0 Switches=s1\nSwitchName=s1 Switches=s0\n") ==
        "t:1: switch s0 is below itself: s0.s1.s0");
  const auto tower = [](int height) {
    std::string text = "SwitchName=s0 Nodes=a\n";
    for (int i = 1; i <= height; ++i) {
      text += "SwitchName=s" + std::to_string(i) + " Switches=s" + std::to_string(i - 1) + "\n";
    }
    return text;
  };
  CHECK(read(tower(16)).at("a").starts_with("s16.s15."));
  const std::string longest(kLongestRack - 1, 'x');
  CHECK(read("SwitchName=" + longest + " Nodes=a\n").at("a") == longest);
  CHECK(refusal_of("SwitchName=" + longest + " Nodes=a\nSwitchName=up Switches=" + longest + "\n")
            .ends_with("and those above it have more than 1024 characters"));
  CHECK(refusal_of(tower(17)) ==
        "t:1: switch s0 has more than 16 switches above it, or is below a loop");
}

TEST_CASE("topology: a file cannot name more hosts than a list") {
  CHECK(refusal_of("SwitchName=s0 Nodes=a[0-99999]\n").starts_with("t:1: nodes: more than 65536"));
  CHECK(refusal_of("SwitchName=s0 Nodes=a[0-50000]\nSwitchName=s1 Nodes=b[0-50000]\n") ==
        "t:2: more than 65536 names");
}

TEST_CASE("a host is found by its name, with its domain or without") {
  const HostRacks racks{{"a", "s0"}, {"b.far", "s1"}, {"b", "s2"}};
  CHECK(rack_in(racks, "a") == "s0");
  CHECK(rack_in(racks, "a.example.org") == "s0");
  CHECK(rack_in(racks, "b.far") == "s1");
  CHECK(rack_in(racks, "b.near") == "s2");
  CHECK(rack_in(racks, "c").empty());
  CHECK(rack_in({}, "").empty());
}

TEST_CASE("the rack in Slurm's address of a host") {
  CHECK(rack_in_address("s0.s1.node3", "switch.switch.node") == "s0.s1");
  CHECK(rack_in_address("s0.s[1-2].node3.example", "switch.switch.node") == "s0.s[1-2]");
  CHECK(rack_in_address("b7.node3", "block.node") == "b7");
  CHECK(rack_in_address("node3", "node").empty());
  CHECK(rack_in_address("node3", "switch.node").empty());
  CHECK(rack_in_address("", "").empty());
}
