#include "launcher/port_reservation.h"

#include <arpa/inet.h>
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
UniqueFd claim_name(const std::string& endpoint) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "dlaunch-master-" + endpoint;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof address.sun_path - 1));
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (fd && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) fd.reset();
  return fd;
}

}  // namespace

Result<PortReservation> reserve_port(const std::string& address, std::uint16_t port) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    size = sizeof *v6;
  } else {
    return Error{.code = Errc::usage, .what = "'" + address + "' is not a numeric address"};
  }
  const std::string context = "MASTER_PORT: bind to " + to_string(Endpoint{address, port});
  PortReservation held;
  held.socket.reset(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto* generic = reinterpret_cast<sockaddr*>(&storage);
  // SO_REUSEADDR lets the workers in, and us where connections of the last job still time out; a
  // listener keeps us out all the same. Only another job's reservation would not: hence the name.
  const int on = 1;
  if (!held.socket) return errno_error(context, errno);
  ::setsockopt(held.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (port != 0) {
    held.name = claim_name(to_string(Endpoint{address, port}));
    if (!held.name) return errno_error(context + " (another dlaunch job has it)", EADDRINUSE);
  }
  if (::bind(held.socket.get(), generic, size) != 0) return errno_error(context, errno);
  ::getsockname(held.socket.get(), generic, &size);
  held.port = ntohs(storage.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
  return held;
}

}  // namespace dlaunch
