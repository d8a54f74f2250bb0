#include "base/endpoint.h"

#include <charconv>

#include "base/units.h"

namespace dlaunch {
namespace {

Error not_endpoint(std::string_view text, const char* why) {
  return Error{.code = Errc::usage, .what = "'" + std::string(text) + "' is not host:port: " + why};
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return not_endpoint(text, "'[' without ']'");
    host = text.substr(1, close - 1);
    const auto rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return not_endpoint(text, "':' expected after ']'");
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else if (const auto colon = text.rfind(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    if (host.find(':') != std::string_view::npos)
      return not_endpoint(text, "put an IPv6 address in [ ]");
    port = text.substr(colon + 1);
    has_port = true;
  }
  if (host.empty()) return not_endpoint(text, "the host is empty");
  Endpoint endpoint{std::string(host), default_port};
  if (!has_port) {
    if (default_port == 0) return not_endpoint(text, "the port is missing");
    return endpoint;
  }
  const auto [end, err] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (err != std::errc() || end != port.data() + port.size() || port.empty()) {
    return not_endpoint(text, "the port is not a number from 0 to 65535");
  }
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

Result<PortRange> parse_port_range(std::string_view text) {
  const auto dash = text.find('-');
  const auto low = text.substr(0, dash);
  const auto high = dash == std::string_view::npos ? low : text.substr(dash + 1);
  const auto first = parse_int(low, 1, 65535, "port"), last = parse_int(high, 1, 65535, "port");
  if (first && last && *first <= *last) {
    return PortRange{static_cast<std::uint16_t>(*first), static_cast<std::uint16_t>(*last)};
  }
  return Error{.code = Errc::usage,
               .what = "'" + std::string(text) + "' is not a range of ports such as 29600-29700"};
}

std::string to_string(const PortRange& ports) {
  const auto first = std::to_string(ports.first);
  return ports.first == ports.last ? first : first + "-" + std::to_string(ports.last);
}

}  // namespace dlaunch
