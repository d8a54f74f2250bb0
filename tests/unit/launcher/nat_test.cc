#include "launcher/wire/nat.h"

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("a warning about a host with a translated address names both addresses") {
  const auto told = nat_warning("a", "192.168.0.7", "10.0.0.1");
  CHECK(told.find("host a has the address 192.168.0.7 for itself and 10.0.0.1 for this host") == 0);
  CHECK(told.find("--interface") != std::string::npos);
  CHECK_FALSE(nat_warning("a", "fd00::7", "fd00::8").empty());
  CHECK_FALSE(nat_warning("a", "10.0.0.1", "10.0.0.10").empty());
}

TEST_CASE("a leader at an address that is ours may be elsewhere") {
  const std::vector<HostAddress> ours = {{"eth0", "172.17.0.2", false}, {"eth1", "fd00::2", false}};
  CHECK(shared_address_note("172.17.0.2", ours).find("172.17.0.2 itself (eth0)") !=
        std::string::npos);
  CHECK_FALSE(shared_address_note("fd00::2", ours).empty());
  CHECK(shared_address_note("172.17.0.20", ours).empty());
  CHECK(shared_address_note("node1", ours).empty());
}

TEST_CASE("one address in two spellings is not translated") {
  CHECK(nat_warning("a", "10.0.0.1", "10.0.0.1").empty());
  CHECK(nat_warning("a", "10.0.0.1", "::ffff:10.0.0.1").empty());
  CHECK(nat_warning("a", "fe80::7%eth0", "fe80::7%br0").empty());
  CHECK(nat_warning("a", "", "10.0.0.1").empty());
  CHECK(nat_warning("a", "10.0.0.1", "?").empty());
}
