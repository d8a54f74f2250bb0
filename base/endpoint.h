// Endpoint: "host:port" as a value. IPv6 literals are written in brackets: "[::1]:29500".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace dlaunch {

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

// Parses "host:port", "[v6]:port" or, if default_port is not 0, a host alone.
Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port = 0);

std::string to_string(const Endpoint& endpoint);

// Ports to choose from; 0 to 0: the kernel chooses.
struct PortRange {
  std::uint16_t first = 0, last = 0;

  bool operator==(const PortRange&) const = default;
};

// Parses "29600-29700", or one port.
Result<PortRange> parse_port_range(std::string_view text);

std::string to_string(const PortRange& ports);

}  // namespace dlaunch
