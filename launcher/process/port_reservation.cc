#include "launcher/process/port_reservation.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "base/address.h"
#include "base/endpoint.h"
#include "base/socket.h"

namespace dlaunch {
namespace {

// An abstract AF_UNIX name: one process at a time can hold it, and it goes away with the process.
UniqueFd claim_name(const std::string& port) {
  sockaddr_un address;
  const socklen_t size = abstract_address("dlaunch-master-" + port, address);
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) fd.reset();
  return fd;
}

// All addresses of both families, whatever MASTER_ADDR is: workers' listeners usually want them
// all, and a stranger on one of them would be in their way.
SocketAddress any_address(bool v6, std::uint16_t port) {
  SocketAddress address;
  if (v6) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    any.sin6_port = htons(port);
    address.size = sizeof any;
    std::memcpy(&address.storage, &any, sizeof any);
  } else {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    address.size = sizeof any;
    std::memcpy(&address.storage, &any, sizeof any);
  }
  return address;
}

Result<PortReservation> bind_to(const std::string& context, std::uint16_t port) {
  PortReservation held;
  held.socket.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool v6 = static_cast<bool>(held.socket);
  if (!v6) held.socket.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!held.socket) return errno_error(context, errno);
  // SO_REUSEADDR lets the workers in, and us if connections of the last job still time out; a
  // listener still keeps us out. Another job's reservation would not: hence the name.
  const int on = 1, off = 0;
  ::setsockopt(held.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (v6) ::setsockopt(held.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  const SocketAddress where = any_address(v6, port);
  if (::bind(held.socket.get(), where.get(), where.size) != 0) return errno_error(context, errno);
  const auto bound = bound_address(held.socket.get());
  if (!bound) return errno_error(context, bound.error().os_errno);
  held.port = port_of(*bound);
  held.name = claim_name(std::to_string(held.port));
  return held;
}

}  // namespace

Result<PortReservation> reserve_port(const std::string& address, std::uint16_t port) {
  constexpr int kAttempts = 16;
  const std::string context = "MASTER_PORT: bind to " + to_string(Endpoint{address, port});
  for (int i = 0; i < kAttempts; ++i) {
    auto held = bind_to(context, port);
    if (!held || held->name) return held;
    if (port != 0) return errno_error(context + " (another dlaunch job has it)", EADDRINUSE);
  }
  // All users can claim the name, and another process holds it; but the kernel hardly ever gives
  // two jobs one port.
  return bind_to(context, port);
}

}  // namespace dlaunch
