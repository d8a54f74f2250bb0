#include "ring/links/listener.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/address.h"
#include "base/contract.h"
#include "base/secret.h"
#include "base/socket.h"

namespace dlaunch {
namespace {

constexpr int kBacklog = 1024;

Result<SocketAddress> best_address(const std::string& host, std::uint16_t port, int flags) {
  const auto found = resolve(host, port, flags);
  if (found) return found->front();
  return Error{.code = Errc::io, .what = "resolve '" + host + "': " + found.error().what};
}

Result<UniqueFd> listen_on_port(const std::string& host, std::uint16_t port) {
  const auto address = best_address(host, port, AI_NUMERICHOST | AI_PASSIVE);
  if (!address) return address.error();
  UniqueFd fd(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // With a given port, old connections that linger do not own it; a listener still does.
  const int on = port != 0 ? 1 : 0;
  if (fd) send_unpaced_on_loopback(fd.get(), address->get());
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), address->get(), address->size) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return errno_error("listen on " + host, errno);
  }
  return fd;
}

Result<UniqueFd> listen_on_one_of(const std::string& host, PortRange ports) {
  for (int port = ports.first; port <= ports.last; ++port) {
    auto fd = listen_on_port(host, static_cast<std::uint16_t>(port));
    const bool taken = !fd && fd.error().os_errno == EADDRINUSE && ports.first != 0;
    if (!taken) return fd;
  }
  return Error{.code = Errc::io,
               .what = "listen on " + host + ": all ports of " + to_string(ports) + " (" +
                       contract::kPortRange + ") are taken; each rank of a host needs its own",
               .os_errno = EADDRINUSE};
}

Result<UniqueFd> listen_tcp(const std::string& host, PortRange ports, Endpoint& bound) {
  auto fd = listen_on_one_of(host, ports);
  if (!fd) return fd;
  const auto address = bound_address(fd->get());
  if (!address) return address.error();
  bound = {numeric_host(*address), port_of(*address)};
  return fd;
}

}  // namespace

Result<Listener> Listener::open(const std::string& address, bool with_unix, PortRange ports) {
  Listener listener;
  auto tcp = listen_tcp(address, ports, listener.tcp_endpoint_);
  if (!tcp) return tcp.error();
  listener.tcp_ = std::move(*tcp);
  if (with_unix) {
    if (auto ok = listener.add_unix(); !ok) return ok.error();
  }
  return listener;
}

Result<Listener> Listener::open_unix() {
  Listener listener;
  if (auto ok = listener.add_unix(); !ok) return ok.error();
  return listener;
}

Result<void> Listener::add_unix() {
  auto hex = random_hex(kListenerHex / 2);
  if (!hex) return hex.error();
  unix_name_ = listener_name(*hex);
  sockaddr_un name;
  const socklen_t size = abstract_address(unix_name_, name);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&name), size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return errno_error("listen on an AF_UNIX socket", errno);
  }
  unix_ = std::move(fd);
  return {};
}

void Listener::close() {
  unix_.reset();
  tcp_.reset();
}

std::string listener_name(std::string_view hex) { return "dlring-" + std::string(hex); }

Result<UniqueFd> connect_unix(const std::string& name, int flags) {
  sockaddr_un address;
  const socklen_t size = abstract_address(name, address);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd || ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    return errno_error("connect to a rank of this host", errno);
  }
  return fd;
}

Result<UniqueFd> connect_tcp(const Endpoint& endpoint, TimePoint deadline) {
  const auto address = best_address(endpoint.host, endpoint.port, 0);
  if (!address) return address.error();
  return connect_socket(address->get(), address->size, "connect to " + to_string(endpoint),
                        deadline);
}

Result<UniqueFd> begin_to_connect_tcp(const Endpoint& endpoint) {
  const auto address = best_address(endpoint.host, endpoint.port, AI_NUMERICHOST);
  if (!address) return address.error();
  return begin_to_connect(address->get(), address->size, "connect to " + to_string(endpoint));
}

Result<void> end_of_connect(int fd, const Endpoint& endpoint) {
  return how_connected(fd, "connect to " + to_string(endpoint));
}

bool has_hung_up(const UniqueFd& socket) {
  char byte;
  const ssize_t n = ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

std::string local_address_towards(const std::string& host) {
  const auto other = best_address(host, 9, 0);
  if (!other) return "";
  const auto own = address_towards(*other);
  return own ? numeric_host(*own) : "";
}

}  // namespace dlaunch
