#include "ring/links/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <list>
#include <vector>

#include "base/address.h"
#include "base/complaints.h"
#include "base/contract.h"
#include "base/failpoint.h"
#include "base/socket.h"
#include "rendezvous/crowd.h"
#include "rendezvous/tls_tunnel.h"

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

// A connection without any proof yet.
struct Stranger {
  Stranger(UniqueFd socket, bool local, const SocketAddress& from, const Secret& secret,
           const HandshakeIdentity& expected, std::string nonce)
      : fd(std::move(socket)),
        is_unix(local),
        address(local ? "this host" : numeric_host(from)),
        handshake(Handshake::acceptor(secret, expected, std::move(nonce))),
        since(steady_now()) {}
  UniqueFd fd;
  bool is_unix;
  std::string address;
  Handshake handshake;
  TimePoint since;
};

Crowd crowd_of(const std::list<Stranger>& strangers) {
  return {strangers.size(), strangers.empty() ? TimePoint{} : strangers.front().since};
}

// Moves the handshake on as far as the socket allows. False: drop it. Only as many bytes are read
// as the handshake wants, so the peer's first data stays in the socket.
bool advance(Stranger& stranger, Complaints& complaints) {
  char buffer[256];
  while (!stranger.handshake.done()) {
    const auto want = std::min(stranger.handshake.wanted(), sizeof buffer);
    const ssize_t n = ::recv(stranger.fd.get(), buffer, want, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    failpoint("listener.read");
    const auto fed = stranger.handshake.feed({buffer, static_cast<std::size_t>(n)});
    // Handshake messages are small: a fresh socket's buffer always takes them whole.
    const auto out = stranger.handshake.take_output();
    if (!out.empty()) (void)::send(stranger.fd.get(), out.data(), out.size(), MSG_NOSIGNAL);
    failpoint("listener.answered");
    if (fed) continue;
    if (fed.error().code == Errc::auth) {
      complaints.warn(stranger.address,
                      "refused a connection from " + stranger.address + ": " + fed.error().what);
    }
    return false;
  }
  return true;
}

}  // namespace

Result<Listener> Listener::open(const std::string& address, bool with_unix, PortRange ports) {
  Listener listener;
  auto tcp = listen_tcp(address, ports, listener.tcp_endpoint_);
  if (!tcp) return tcp.error();
  listener.tcp_ = std::move(*tcp);
  listener.stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener.stop_) return errno_error("listen: make an eventfd", errno);
  if (!with_unix) return listener;
  auto hex = random_hex(kListenerHex / 2);
  if (!hex) return hex.error();
  listener.unix_name_ = listener_name(*hex);
  sockaddr_un name;
  const socklen_t size = abstract_address(listener.unix_name_, name);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&name), size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return errno_error("listen on an AF_UNIX socket", errno);
  }
  listener.unix_ = std::move(fd);
  return listener;
}

Result<void> Listener::accept_until(const Secret& secret, const HandshakeIdentity& expected,
                                    const Take& take, TimePoint deadline) {
  std::list<Stranger> strangers;  // the oldest first
  Complaints complaints;
  while (true) {
    const auto begun = steady_now();
    const bool room = !crowd_of(strangers).full(begun);
    std::vector<pollfd> fds = {{room ? unix_.get() : -1, POLLIN, 0},
                               {room ? tcp_.get() : -1, POLLIN, 0},
                               {stop_.get(), POLLIN, 0}};
    for (const auto& stranger : strangers) fds.push_back({stranger.fd.get(), POLLIN, 0});
    const auto until = std::min(deadline, crowd_of(strangers).deadline(begun));
    if (::poll(fds.data(), fds.size(), poll_timeout_ms(begun, until)) < 0 && errno != EINTR) {
      return errno_error("poll", errno);
    }
    if (fds[2].revents != 0) return Error{.code = Errc::aborted, .what = "stopped"};
    const auto now = steady_now();
    std::size_t at = 3;
    for (auto it = strangers.begin(); it != strangers.end(); ++at) {
      const bool ready = fds[at].revents != 0;
      if (it->since + kHandshakeTimeout <= now || (ready && !advance(*it, complaints))) {
        it = strangers.erase(it);
      } else if (it->handshake.done()) {
        failpoint("listener.proven");
        const bool enough = take(std::move(it->fd), it->handshake.peer(), it->is_unix);
        it = strangers.erase(it);
        if (enough) return {};
      } else {
        ++it;
      }
    }
    for (const bool local : {true, false}) {
      if (fds[local ? 0 : 1].revents == 0 || crowd_of(strangers).full(now)) continue;
      SocketAddress from;
      UniqueFd fd(::accept4(local ? unix_.get() : tcp_.get(), from.get(), &from.size,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
      // A peer that hung up while it waited does not matter.
      if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        return errno_error("accept a peer's connection", errno);
      }
      if (fd && !local) {
        auto secure = secured(std::move(fd), TlsChannel::Side::acceptor, secret);
        if (!secure) return secure.error();
        fd = std::move(*secure);
      }
      auto nonce = random_bytes(kNonceBytes);
      if (fd && nonce) {
        strangers.emplace_back(std::move(fd), local, from, secret, expected, *nonce);
      }
      if (crowd_of(strangers).overfull()) strangers.pop_front();
    }
    if (now >= deadline) return Error{.code = Errc::timeout, .what = "peers have not connected"};
  }
}

void Listener::stop() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
}

void Listener::renew() const {
  eventfd_t count;
  ::eventfd_read(stop_.get(), &count);
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

std::string local_address_towards(const std::string& host) {
  const auto other = best_address(host, 9, 0);
  if (!other) return "";
  const auto own = address_towards(*other);
  return own ? numeric_host(*own) : "";
}

}  // namespace dlaunch
