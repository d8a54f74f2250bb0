#include "base/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/units.h"

namespace dlaunch {
namespace {

bool is_v6(std::string_view address) { return address.find(':') != std::string_view::npos; }

// The address's bytes; nullopt: it is not an address.
std::optional<std::vector<unsigned char>> bytes_of(const std::string& address) {
  const bool v6 = is_v6(address);
  std::vector<unsigned char> bytes(v6 ? 16 : 4);
  if (::inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(), bytes.data()) != 1) return {};
  return bytes;
}

bool same_bits(const std::vector<unsigned char>& a, const std::vector<unsigned char>& b, int bits) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; bits > 0; ++i, bits -= 8) {
    const int mask = bits >= 8 ? 0xff : 0xff << (8 - bits) & 0xff;
    if (((a[i] ^ b[i]) & mask) != 0) return false;
  }
  return true;
}

// One word of `wanted`.
struct Pattern {
  std::string interface;           // "": an address
  std::vector<unsigned char> net;  // its first `bits` count
  int bits = 0;

  bool fits(const HostAddress& candidate) const {
    if (!interface.empty()) return candidate.interface == interface;
    const auto bytes = bytes_of(candidate.address);
    return bytes && same_bits(*bytes, net, bits);
  }
};

Result<Pattern> parse_pattern(std::string_view word) {
  const auto slash = word.find('/');
  auto net = bytes_of(std::string(word.substr(0, slash)));
  if (!net && slash == std::string_view::npos) return Pattern{.interface = std::string(word)};
  const auto wrong = [&] {
    return Error{.code = Errc::usage,
                 .what = fmt::format("'{}' is not a net such as 10.0.0.0/8", word)};
  };
  if (!net) return wrong();
  int bits = static_cast<int>(net->size()) * 8;
  if (slash != std::string_view::npos) {
    const auto length = parse_int(word.substr(slash + 1), 0, bits, "net");
    if (!length) return wrong();
    bits = *length;
  }
  return Pattern{.interface = "", .net = std::move(*net), .bits = bits};
}

bool is_link_local(const std::string& address) {
  return address.starts_with("169.254.") || address.starts_with("fe80:");
}

std::string list_of(const std::vector<HostAddress>& addresses) {
  std::vector<std::string> words;
  words.reserve(addresses.size());
  for (const auto& a : addresses) words.push_back(a.interface + " " + a.address);
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::vector<HostAddress> host_addresses() {
  std::vector<HostAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    // A bridge without members is up, but not running.
    constexpr unsigned kUsable = IFF_UP | IFF_RUNNING;
    if (it->ifa_addr == nullptr || (it->ifa_flags & kUsable) != kUsable) continue;
    const int family = it->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char text[NI_MAXHOST];
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(it->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    const std::string address = text;
    if (address.starts_with("fe80:")) continue;
    found.push_back({it->ifa_name, address, (it->ifa_flags & IFF_LOOPBACK) != 0});
  }
  ::freeifaddrs(list);
  std::stable_partition(found.begin(), found.end(),
                        [](const HostAddress& a) { return !is_v6(a.address); });
  return found;
}

Result<std::string> choose_address(std::string_view wanted,
                                   const std::vector<HostAddress>& addresses) {
  for (std::size_t begin = 0, end = 0; end != wanted.npos; begin = end + 1) {
    end = wanted.find(',', begin);
    const auto pattern = parse_pattern(wanted.substr(begin, end - begin));
    if (!pattern) return pattern.error();
    const auto fitting =
        std::find_if(addresses.begin(), addresses.end(),
                     [&](const HostAddress& candidate) { return pattern->fits(candidate); });
    if (fitting != addresses.end()) return fitting->address;
  }
  return Error{.code = Errc::usage,
               .what = fmt::format("'{}' fits no address of this host; it has {}", wanted,
                                   addresses.empty() ? "none" : list_of(addresses))};
}

std::string any_address(const std::vector<HostAddress>& addresses) {
  for (const auto& candidate : addresses) {
    if (!candidate.loopback && !is_link_local(candidate.address)) return candidate.address;
  }
  return "127.0.0.1";
}

}  // namespace dlaunch
