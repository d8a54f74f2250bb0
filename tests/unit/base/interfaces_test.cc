#include "base/interfaces.h"

#include <algorithm>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

const std::vector<HostAddress> kHost = {{"lo", "127.0.0.1", true},    {"eth1", "169.254.3.4"},
                                        {"eth0", "192.168.7.9"},      {"ib0", "10.1.2.3"},
                                        {"lo", "::1", true},          {"eth0", "fd77::9"},
                                        {"eth2", "2001:db8:0:80::17"}};

std::string chosen(const char* wanted) {
  const auto address = choose_address(wanted, kHost);
  return address ? *address : "! " + address.error().what;
}

}  // namespace

TEST_CASE("interfaces: chosen by name, address, net, or the first of several that fits") {
  CHECK(chosen("eth0") == "192.168.7.9");
  CHECK(chosen("eth2") == "2001:db8:0:80::17");
  CHECK(chosen("lo") == "127.0.0.1");
  CHECK(chosen("fd77::9") == "fd77::9");
  CHECK(chosen("FD77:0:0::9") == "fd77::9");
  CHECK(chosen("10.0.0.0/8") == "10.1.2.3");
  CHECK(chosen("10.1.2.0/23") == "10.1.2.3");
  CHECK(chosen("2001:db8:0:ff::/57") == "2001:db8:0:80::17");
  CHECK(chosen("0.0.0.0/0") == "127.0.0.1");
  CHECK(chosen("wlan0,172.16.0.0/12,ib0,eth0") == "10.1.2.3");
}

TEST_CASE("interfaces: an error about a wrong choice lists the addresses") {
  CHECK(chosen("eth9").starts_with("! 'eth9' fits no address of this host; it has lo 127.0.0.1, "));
  CHECK(chosen("eth").starts_with("! 'eth' fits no address"));
  CHECK(chosen("10.1.2.4").starts_with("! '10.1.2.4' fits no address"));
  CHECK(chosen("10.1.4.0/23").starts_with("! "));
  CHECK(chosen("2001:db8:0:7f::/57").starts_with("! "));
  CHECK(chosen("10.0.0.0/33") == "! '10.0.0.0/33' is not a net such as 10.0.0.0/8");
  CHECK(chosen("eth0/8") == "! 'eth0/8' is not a net such as 10.0.0.0/8");
  CHECK(chosen("").starts_with("! "));
}

TEST_CASE("interfaces: the default is the first address that others may reach") {
  CHECK(any_address(kHost) == "192.168.7.9");
  CHECK(any_address({kHost[0], kHost[4], kHost[5]}) == "fd77::9");
  CHECK(any_address({kHost[0], kHost[1]}) == "127.0.0.1");
}

TEST_CASE("interfaces: this host has a loopback, and IPv4 comes first") {
  const auto addresses = host_addresses();
  CHECK(std::any_of(addresses.begin(), addresses.end(),
                    [](const auto& a) { return a.loopback && a.address == "127.0.0.1"; }));
  CHECK(std::is_partitioned(addresses.begin(), addresses.end(), [](const auto& a) {
    return a.address.find(':') == std::string::npos;
  }));
}
