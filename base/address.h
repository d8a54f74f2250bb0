// Addresses that sockets connect and listen to.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace dlaunch {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// All addresses of a name or a numeric address, the best first, for TCP; never empty. `flags` are
// getaddrinfo's. It may ask a name server, which can take seconds. An error has only its reason
// ("Name or service not known"): the caller adds the host.
Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port,
                                           int flags = 0);

// The address that a socket is bound to, or is connected from; otherwise errno's error.
Result<SocketAddress> bound_address(int fd);

// This host's address for packets to another. Sends nothing.
Result<SocketAddress> address_towards(const SocketAddress& other);

// "10.0.0.7", "fd00::7".
std::string numeric_host(const SocketAddress& address);
// 0 if there is none.
std::uint16_t port_of(const SocketAddress& address);

bool is_loopback(const sockaddr* address);

// Neither a numeric address nor one of loopback's own names. If it leads to loopback nevertheless,
// as the host's own name does on Debian (127.0.1.1), it leads elsewhere on other hosts.
bool is_host_name(const std::string& host);

}  // namespace dlaunch
