#include "base/address.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/unique_fd.h"

namespace dlaunch {

Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) return Error{.code = Errc::io, .what = ::gai_strerror(code)};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    std::memcpy(addresses.emplace_back().get(), one->ai_addr, one->ai_addrlen);
    addresses.back().size = one->ai_addrlen;
  }
  return addresses;
}

Result<SocketAddress> bound_address(int fd) {
  SocketAddress address;
  if (::getsockname(fd, address.get(), &address.size) != 0) return errno_error("address", errno);
  return address;
}

Result<SocketAddress> address_towards(const SocketAddress& other) {
  const UniqueFd fd(::socket(other.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd || ::connect(fd.get(), other.get(), other.size) != 0) return errno_error("way", errno);
  return bound_address(fd.get());
}

std::string numeric_host(const SocketAddress& address) {
  char text[NI_MAXHOST] = "?";
  ::getnameinfo(address.get(), address.size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::uint16_t port_of(const SocketAddress& address) {
  switch (address.storage.ss_family) {
    case AF_INET:
      return ntohs(reinterpret_cast<const sockaddr_in*>(address.get())->sin_port);
    case AF_INET6:
      return ntohs(reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_port);
    default:
      return 0;
  }
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_host_name(const std::string& host) {
  for (const char* loopback : {"localhost", "ip6-localhost", "ip6-loopback"}) {
    if (host.starts_with(loopback)) return false;
  }
  return !resolve(host, 0, AI_NUMERICHOST);
}

}  // namespace dlaunch
