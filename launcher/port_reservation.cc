#include "launcher/port_reservation.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/endpoint.h"

namespace dlaunch {
namespace {

// An abstract AF_UNIX name that one process at a time can hold, and that goes away with it.
UniqueFd claim_name(const std::string& port) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "dlaunch-master-" + port;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof address.sun_path - 1));
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (fd && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) fd.reset();
  return fd;
}

}  // namespace

Result<PortReservation> reserve_port(const std::string& address, std::uint16_t port) {
  // All addresses of both families, whatever MASTER_ADDR is: workers' listeners usually want them
  // all, and a stranger on one of them would be in their way.
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  any.sin6_port = htons(port);
  sockaddr_in any_v4{};
  any_v4.sin_family = AF_INET;
  any_v4.sin_port = htons(port);
  const std::string context = "MASTER_PORT: bind to " + to_string(Endpoint{address, port});
  PortReservation held;
  held.socket.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool v6 = static_cast<bool>(held.socket);
  if (!v6) held.socket.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!held.socket) return errno_error(context, errno);
  // SO_REUSEADDR lets the workers in, and us where connections of the last job still time out; a
  // listener keeps us out all the same. Only another job's reservation would not: hence the name.
  const int on = 1, off = 0;
  ::setsockopt(held.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (v6) ::setsockopt(held.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (port != 0) {
    held.name = claim_name(std::to_string(port));
    if (!held.name) return errno_error(context + " (another dlaunch job has it)", EADDRINUSE);
  }
  auto* where = v6 ? reinterpret_cast<sockaddr*>(&any) : reinterpret_cast<sockaddr*>(&any_v4);
  socklen_t size = v6 ? sizeof any : sizeof any_v4;
  if (::bind(held.socket.get(), where, size) != 0) return errno_error(context, errno);
  ::getsockname(held.socket.get(), where, &size);
  held.port = ntohs(v6 ? any.sin6_port : any_v4.sin_port);
  return held;
}

}  // namespace dlaunch
