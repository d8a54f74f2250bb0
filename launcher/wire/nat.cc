#include "launcher/wire/nat.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace dlaunch {
namespace {

std::string_view plain_address(std::string_view address) {
  constexpr std::string_view kMapped = "::ffff:";
  if (address.starts_with(kMapped)) address.remove_prefix(kMapped.size());
  return address.substr(0, address.find('%'));
}

}  // namespace

std::string nat_warning(const std::string& host, const std::string& own, const std::string& seen) {
  const auto there = plain_address(own), here = plain_address(seen);
  if (there.empty() || here == "?" || there == here) return "";
  return fmt::format(
      "host {} has the address {} for itself and {} for this host: it is translated on the way "
      "(NAT), and other hosts may not reach its ranks; use a network without NAT, or choose with "
      "--interface an address of each host that the others reach",
      host, there, here);
}

std::string shared_address_note(const std::string& address, const std::vector<HostAddress>& ours) {
  const auto there = plain_address(address);
  const auto same = std::ranges::find_if(
      ours, [&](const HostAddress& own) { return plain_address(own.address) == there; });
  if (same == ours.end()) return "";
  return fmt::format(
      "; this host has the address {} itself ({}): if the leader is another host, both call "
      "themselves that, as containers do; choose with --interface an address of each host that the "
      "others reach",
      there, same->interface);
}

}  // namespace dlaunch
