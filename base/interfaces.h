// Interfaces: chooses which of this host's addresses other hosts should use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

struct HostAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric
  bool loopback = false;
};

// The addresses of interfaces that are up, without link-local IPv6 ones, which are useless to other
// hosts. IPv4 comes first.
std::vector<HostAddress> host_addresses();

// The first of `addresses` that fits a word of `wanted`: interfaces, addresses or nets such as
// eth0, 10.0.0.7, 10.0.0.0/8 or fd00::/8, separated by commas, the preferred ones first.
// Errc::usage if none fits, with the list of addresses.
Result<std::string> choose_address(std::string_view wanted,
                                   const std::vector<HostAddress>& addresses);

// The first address that is usable for other hosts; loopback if there is none.
std::string any_address(const std::vector<HostAddress>& addresses);

}  // namespace dlaunch
