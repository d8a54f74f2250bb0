// The handshake over a connected socket, for code without a loop.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/failpoint.h"
#include "rendezvous/handshake.h"

namespace dlaunch {
namespace {

// Waits until the descriptor is ready; a time-out or an interrupted socket is the Error.
Result<void> wait_ready(int fd, short events, TimePoint deadline) {
  while (true) {
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, poll_timeout_ms(steady_now(), deadline));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return errno_error("handshake: poll", errno);
    if (n == 0 && steady_now() >= deadline) {
      return Error{.code = Errc::timeout, .what = "handshake: the other side does not answer"};
    }
  }
}

Result<void> send_all(int fd, std::string_view bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const std::size_t size = failpoint_write("handshake.send", bytes.size());
    const ssize_t n = ::send(fd, bytes.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (auto ready = wait_ready(fd, POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return errno_error("handshake: send", errno);
    }
  }
  return {};
}

// Reads no more than the message it waits for: bytes after the handshake are not ours.
Result<HandshakeIdentity> run(int fd, Handshake handshake, TimePoint deadline) {
  char buffer[256];
  while (true) {
    if (auto sent = send_all(fd, handshake.take_output(), deadline); !sent) return sent.error();
    failpoint("handshake.sent");
    if (handshake.done()) return handshake.peer();
    const auto size = std::min(handshake.wanted(), sizeof buffer);
    const ssize_t n = ::recv(fd, buffer, size, MSG_DONTWAIT);
    if (n == 0) {
      return Error{.code = Errc::io, .what = "handshake: the other side closed the connection"};
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (auto ready = wait_ready(fd, POLLIN, deadline); !ready) return ready.error();
    } else if (n < 0 && errno != EINTR) {
      return errno_error("handshake: receive", errno);
    } else if (n > 0) {
      const auto fed = handshake.feed(std::string_view(buffer, static_cast<std::size_t>(n)));
      if (fed) continue;
      (void)send_all(fd, handshake.take_output(), deadline);  // the refusal
      return fed.error();
    }
  }
}

Result<std::string> nonce() { return random_bytes(kNonceBytes); }

}  // namespace

Result<HandshakeIdentity> handshake_connect(int fd, const Secret& secret, HandshakeIdentity self,
                                            TimePoint deadline) {
  auto fresh = nonce();
  if (!fresh) return fresh.error();
  return run(fd, Handshake::connector(secret, std::move(self), std::move(*fresh)), deadline);
}

Result<HandshakeIdentity> handshake_accept(int fd, const Secret& secret, HandshakeIdentity expected,
                                           TimePoint deadline) {
  auto fresh = nonce();
  if (!fresh) return fresh.error();
  return run(fd, Handshake::acceptor(secret, std::move(expected), std::move(*fresh)), deadline);
}

}  // namespace dlaunch
