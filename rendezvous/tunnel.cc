#include "rendezvous/tunnel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/socket.h"
#include "rendezvous/handshake.h"

namespace dlaunch {
namespace {

constexpr std::size_t kCarried = 64 << 10;  // bytes on their way, in each direction
constexpr int kTurns = 16;                  // before the next tunnel's turn
constexpr int kOutlives = 60'000;           // ms for a peer to take the bytes left to it

}  // namespace

char* Tunnel::Load::room() {
  if (bytes_.empty()) bytes_.resize(kCarried);
  begin_ = end_ = 0;
  return bytes_.data();
}

Tunnel::Tunnel(UniqueFd outer, UniqueFd inner, int used, std::unique_ptr<TlsChannel> channel,
               TlsChannel::Side side)
    : outer_(std::move(outer)),
      inner_(std::move(inner)),
      key_(carried_by(used, outer_.get())),
      channel_(std::move(channel)),
      accepts_(side == TlsChannel::Side::acceptor) {}

Tunnel::~Tunnel() { carried_no_more(key_); }

void Tunnel::close() {
  outer_.reset();
  inner_.reset();
}

Tunnel::State Tunnel::carry() {
  if (!shaken_ && !refused_) shake_hands();
  if (refused_) drop_all();
  if (!shaken_) return over_ ? State::over : State::waits;
  for (int turn = 0; turn < kTurns; ++turn) {
    const bool out = carry_out(), in = carry_in();
    if (over()) return State::over;
    if (out || in) continue;
    if (!outlives_ && hung_up()) outlive_program();
    return State::waits;
  }
  return State::goes_on;
}

void Tunnel::shake_hands() {
  if (!accepts_ || speaks_tls()) {
    accepts_ = false;
    const auto shaken = channel_->shake_hands();
    shaken_ = shaken.outcome == TlsChannel::Outcome::moved;
    over_ = shaken.outcome == TlsChannel::Outcome::ended;
    if (shaken.outcome == TlsChannel::Outcome::refused) refuse();
  }
  // The program may have closed its end meanwhile: its unsent bytes are then of no use.
  if (!shaken_ && !over_) over_ = hung_up();
}

// False: not yet, or never. A connector that does not encrypt gets its refusal in clear.
bool Tunnel::speaks_tls() {
  constexpr char kTlsRecord = 0x16;
  char bytes[1024];
  const ssize_t n = ::recv(outer_.get(), bytes, 1, MSG_PEEK | MSG_DONTWAIT);
  over_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  if (n != 1) return false;
  if (bytes[0] == kTlsRecord) return true;
  // Closing a socket with unread bytes sends a reset, which overtakes the refusal.
  (void)::recv(outer_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  const std::string told = refusal("this job encrypts its connections: do both sides have --tls?");
  (void)::send(outer_.get(), told.data(), told.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  over_ = true;
  return false;
}

// The tunnel stays until the program has closed its end: the program may be about to write, and
// would get a broken pipe instead of the refusal.
void Tunnel::refuse() {
  refused_ = true;
  (void)::shutdown(outer_.get(), SHUT_RDWR);
  const std::string told =
      refusal("TLS: " + channel_->why() + ": do both sides have this job's secret and --tls?");
  (void)::send(inner_.get(), told.data(), told.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Tunnel::drop_all() {
  ssize_t n = 1;
  while (n > 0) n = ::recv(inner_.get(), load_out_.room(), kCarried, MSG_DONTWAIT);
  over_ = n == 0 || (errno != EAGAIN && errno != EINTR) || hung_up();
}

// True: bytes have moved.
bool Tunnel::carry_out() {
  if (load_out_.empty() && !out_ended_) {
    const ssize_t n = ::recv(inner_.get(), load_out_.room(), kCarried, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    load_out_.came(n > 0 ? static_cast<std::size_t>(n) : 0);
    if (n <= 0) {
      out_ended_ = true;
      channel_->end_writing();
      (void)::shutdown(outer_.get(), SHUT_WR);
    }
  }
  if (load_out_.empty()) return false;
  const auto written = channel_->write(load_out_.data(), load_out_.size());
  if (written.outcome == TlsChannel::Outcome::again) return false;
  if (written.outcome == TlsChannel::Outcome::moved) {
    load_out_.gone(written.bytes);
  } else {
    load_out_.drop();
    out_ended_ = true;  // the bytes that came from there may still be read
  }
  return true;
}

bool Tunnel::carry_in() {
  if (load_in_.empty() && !in_ended_) {
    const auto got = channel_->read(load_in_.room(), kCarried);
    if (got.outcome == TlsChannel::Outcome::again) return false;
    load_in_.came(got.bytes);
    in_ended_ = got.outcome != TlsChannel::Outcome::moved;
    if (got.outcome == TlsChannel::Outcome::refused) {
      log_warn("closing a connection that was changed on its way: TLS: {}", channel_->why());
    }
    if (in_ended_) (void)::shutdown(inner_.get(), SHUT_WR);
  }
  if (load_in_.empty()) return false;
  const ssize_t n =
      ::send(inner_.get(), load_in_.data(), load_in_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && errno == EAGAIN) return false;
  n < 0 ? load_in_.drop() : load_in_.gone(static_cast<std::size_t>(n));
  return true;
}

// The program has closed its end.
bool Tunnel::hung_up() const {
  pollfd end{inner_.get(), 0, 0};
  return ::poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLERR)) != 0;
}

// Bytes written before are still sent, as after closing a socket. A peer that does not read gets
// only a limited time: then the kernel gives up, which ends the tunnel.
void Tunnel::outlive_program() {
  outlives_ = true;
  int limit = 0;
  socklen_t size = sizeof limit;
  const int fd = outer_.get();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &size) == 0 && limit > 0) return;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kOutlives, sizeof kOutlives);
}

bool Tunnel::over() const {
  if (over_) return true;
  return out_ended_ && load_out_.empty() && ((in_ended_ && load_in_.empty()) || hung_up());
}

}  // namespace dlaunch
