// Interfaces: which of this host's addresses others are told to reach us at.
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

// Those of interfaces that are up, but for link-local IPv6 ones, which mean nothing to other hosts.
// IPv4 comes first.
std::vector<HostAddress> host_addresses();

// The first of them that fits a word of `wanted`: interfaces, addresses or nets such as eth0,
// 10.0.0.7, 10.0.0.0/8 or fd00::/8, the better ones before a comma. Errc::usage where nothing fits,
// with what there is.
Result<std::string> choose_address(std::string_view wanted,
                                   const std::vector<HostAddress>& addresses);

// The first of them that other hosts may know; loopback if there is none.
std::string any_address(const std::vector<HostAddress>& addresses);

}  // namespace dlaunch
