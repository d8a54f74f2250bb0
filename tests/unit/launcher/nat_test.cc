#include "launcher/hosts/nat.h"

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("a host whose address is translated is told of, with both addresses") {
  const auto told = nat_warning("a", "192.168.0.7", "10.0.0.1");
  CHECK(told.find("host a has the address 192.168.0.7 for itself and 10.0.0.1 for this host") == 0);
  CHECK(told.find("--interface") != std::string::npos);
  CHECK_FALSE(nat_warning("a", "fd00::7", "fd00::8").empty());
  CHECK_FALSE(nat_warning("a", "10.0.0.1", "10.0.0.10").empty());
}

TEST_CASE("one address in two spellings is not translated") {
  CHECK(nat_warning("a", "10.0.0.1", "10.0.0.1").empty());
  CHECK(nat_warning("a", "10.0.0.1", "::ffff:10.0.0.1").empty());
  CHECK(nat_warning("a", "fe80::7%eth0", "fe80::7%br0").empty());
  CHECK(nat_warning("a", "", "10.0.0.1").empty());
  CHECK(nat_warning("a", "10.0.0.1", "?").empty());
}
