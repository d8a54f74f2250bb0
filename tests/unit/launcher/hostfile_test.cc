#include "launcher/plan/hostfile.h"

#include <random>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

std::vector<HostEntry> parsed(std::string_view text) {
  auto hosts = parse_hostfile(text, "hosts");
  REQUIRE_MESSAGE(hosts, (hosts ? "" : hosts.error().what));
  return *hosts;
}

std::string hostfile_error(std::string_view text) {
  auto hosts = parse_hostfile(text, "hosts");
  REQUIRE_FALSE(hosts);
  CHECK(hosts.error().code == Errc::protocol);
  return hosts.error().what;
}

std::vector<std::string> names(std::string_view text) {
  auto expanded = expand_ranges(text);
  REQUIRE(expanded);
  return *expanded;
}

}  // namespace

TEST_CASE("a list of names") {
  const auto list = parse_name_list("node[01-02,7],login,node01");
  REQUIRE(list);
  CHECK(*list == std::vector<std::string>{"node01", "node02", "node7", "login", "node01"});
  for (const char* bad : {"", "a,", "a b", "a:2", "me@a", "[::1]", "a[1-", "a[0-70000]"}) {
    CHECK_FALSE(parse_name_list(bad));
  }
}

TEST_CASE("Open MPI's hostfile") {
  const auto hosts = parsed(
      "# the cluster\n"
      "\n"
      "node01 slots=8 max_slots=16\n"
      "me@node02\tslots=4 # busy\r\n"
      "node03 max-slots=2\n");
  REQUIRE(hosts.size() == 3);
  CHECK(hosts[0] == HostEntry{"node01", "", 8, 16, {}, 3});
  CHECK(hosts[1] == HostEntry{"node02", "me", 4, {}, {}, 4});
  CHECK(hosts[2] == HostEntry{"node03", "", {}, 2, {}, 5});
}

TEST_CASE("MPICH's hostfile") {
  const auto hosts = parsed("node01:8\nnode02:4\nnode03");
  REQUIRE(hosts.size() == 3);
  CHECK(hosts[0].slots == 8);
  CHECK(hosts[1].slots == 4);
  CHECK_FALSE(hosts[2].slots);
}

TEST_CASE("Horovod's hostfile with an ssh port") {
  CHECK(parsed("worker-0 slots=2 port=2222\n")[0].port == 2222);
}

TEST_CASE("a host on several lines has the slots of all") {
  const auto hosts = parsed("a\na\nb slots=2\na slots=3\n");
  REQUIRE(hosts.size() == 2);
  CHECK(hosts[0].host == "a");
  CHECK(hosts[0].slots == 5);
  CHECK(hosts[0].line == 1);
  CHECK(hosts[1].slots == 2);
}

TEST_CASE("ranges keep their width and multiply") {
  CHECK(names("node[08-10]") == std::vector<std::string>{"node08", "node09", "node10"});
  CHECK(names("n[1-2,7]x") == std::vector<std::string>{"n1x", "n2x", "n7x"});
  CHECK(names("r[0-1]n[0,2]") == std::vector<std::string>{"r0n0", "r0n2", "r1n0", "r1n2"});
  CHECK(names("plain") == std::vector<std::string>{"plain"});
  const auto hosts = parsed("node[01-16]:8\n");
  CHECK(hosts.size() == 16);
  CHECK(hosts[15].host == "node16");
  CHECK(hosts[15].slots == 8);
}

TEST_CASE("addresses, also of IPv6") {
  const auto hosts = parsed("10.0.0.1:2\n[::1]:3\n[fe80::1%eth0] slots=4\n");
  CHECK(hosts[0].host == "10.0.0.1");
  CHECK(hosts[1].host == "::1");
  CHECK(hosts[1].slots == 3);
  CHECK(hosts[2].host == "fe80::1%eth0");
}

TEST_CASE("an error in a hostfile names the line") {
  CHECK(hostfile_error("a\nb slots=x\n") ==
        "hosts:2: slots: 'x' is not a whole number from 1 to 1048576");
  CHECK(hostfile_error("a slots=0").starts_with("hosts:1: slots: '0'"));
  CHECK(hostfile_error("a cpus=4") == "hosts:1: 'cpus=4' is not slots=N, max_slots=N or port=N");
  CHECK(hostfile_error("a b") == "hosts:1: 'b' is not slots=N, max_slots=N or port=N");
  CHECK(hostfile_error("a slots=9 max_slots=8") == "hosts:1: slots=9 is more than max_slots=8");
  CHECK(hostfile_error("node[1-") == "hosts:1: '[1-': '[' without ']'");
  CHECK(hostfile_error("node[5-1]") == "hosts:1: '5-1' is not an increasing range");
  CHECK(hostfile_error("node[x]") == "hosts:1: 'x' is not a range");
  CHECK(hostfile_error("node[]") == "hosts:1: '' is not a range");
  CHECK(hostfile_error("\n\na;rm\n") == "hosts:3: 'a;rm' is not a host name");
  CHECK(hostfile_error("-oProxyCommand=x") == "hosts:1: '-oProxyCommand=x' is not a host name");
  CHECK(hostfile_error("::1") == "hosts:1: '::1': put an IPv6 address in [ ]");
  CHECK(hostfile_error("@a") == "hosts:1: '@a': no user before '@'");
  CHECK(hostfile_error("# nothing\n\n") == "hosts:2: no host in this file");
  CHECK(hostfile_error("") == "hosts:1: no host in this file");
  CHECK(hostfile_error("n[0-65535]\nm\n") == "hosts:2: more than 65536 hosts");
  CHECK(hostfile_error("n[0-999][0-999]") == "hosts:1: more than 65536 hosts");
}

TEST_CASE("a list of hosts") {
  auto hosts = parse_host_list("a:2,b,n[1-2,4]:3,a");
  REQUIRE(hosts);
  REQUIRE(hosts->size() == 5);
  CHECK((*hosts)[0].slots == 3);
  CHECK_FALSE((*hosts)[1].slots);
  CHECK((*hosts)[4].host == "n4");
  CHECK((*hosts)[4].slots == 3);
  for (const char* bad : {"", ",", "a,", "a,,b", "a:", "a:0", "a:x", "a b", "n[1,b"}) {
    CHECK_MESSAGE(!parse_host_list(bad), bad);
  }
}

TEST_CASE("no bytes break the hostfile parser") {
  std::mt19937 random(20240611);
  const std::string_view pieces[] = {"node", "[",     "]",         "-",    ",", "01", "99999999999",
                                     ":",    "slots", "=",         "\n",   " ", "#",  "@",
                                     "\0",   "\xff",  "max_slots", "port", "8", "::", "\t"};
  std::size_t good = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (auto left = random() % 12; left > 0; --left) {
      text += random() % 4 == 0 ? std::string(1, static_cast<char>(random()))
                                : std::string(pieces[random() % std::size(pieces)]);
    }
    if (auto hosts = parse_hostfile(text, "f")) {
      ++good;
      REQUIRE_FALSE(hosts->empty());
      for (const auto& host : *hosts) {
        REQUIRE_FALSE(host.host.empty());
        REQUIRE(host.slots.value_or(1) >= 1);
      }
    } else {
      REQUIRE(hosts.error().code == Errc::protocol);
      REQUIRE(hosts.error().what.starts_with("f:"));
    }
  }
  CHECK(good > 200);
}
