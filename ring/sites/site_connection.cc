#include "ring/sites/site_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/codec.h"
#include "base/socket.h"
#include "ring/sites/site_message.h"

namespace dlaunch {
namespace {

// What may wait in the kernel: small messages come behind it.
constexpr int kUnsent = 256 << 10;
constexpr std::size_t kRead = 256 << 10;
constexpr std::size_t kSiteGreeting = 2 * sizeof(std::uint64_t);

void tune(int fd) {
  const Carrier tcp(fd);
  const int on = 1;
  ::setsockopt(tcp.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(tcp.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsent, sizeof kUnsent);
  keep_alive(fd);
}

Error gone() { return Error{.code = Errc::io, .what = "the other end has closed the connection"}; }

}  // namespace

Result<SiteConnection> SiteConnection::connecting(UniqueFd fd, const Secret& secret,
                                                  HandshakeIdentity claims,
                                                  const SiteGreeting& greeting) {
  SiteConnection made(std::move(fd), secret, greeting);
  made.state_ = State::connects;
  made.connects_ = true;
  made.claims_ = std::move(claims);
  return made;
}

Result<SiteConnection> SiteConnection::accepted(UniqueFd fd, const Secret& secret,
                                                HandshakeIdentity expected,
                                                const SiteGreeting& greeting) {
  SiteConnection made(std::move(fd), secret, greeting);
  if (auto ok = made.secure(TlsChannel::Side::acceptor); !ok) return ok.error();
  auto nonce = random_bytes(kNonceBytes);
  if (!nonce) return nonce.error();
  made.handshake_.emplace(Handshake::acceptor(secret, std::move(expected), *nonce));
  return made;
}

Result<void> SiteConnection::secure(TlsChannel::Side side) {
  auto fd = secured(std::move(fd_), side, secret_);
  if (!fd) return fd.error();
  fd_ = std::move(*fd);
  tune(fd_.get());
  return {};
}

short SiteConnection::events() const {
  if (state_ == State::connects) return POLLOUT;
  const bool has_output = written_ < out_.size() || !soon_.empty() || !later_.empty();
  return static_cast<short>(POLLIN | (has_output ? POLLOUT : 0));
}

Result<void> SiteConnection::move(short events, TimePoint now, const OnFrame& on_frame) {
  if (events == 0) return {};
  if (state_ == State::connects) return begin_handshake();
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    if (auto ok = read(now, on_frame); !ok) return ok;
  }
  return (events & POLLOUT) != 0 ? write() : Result<void>();
}

Result<void> SiteConnection::begin_handshake() {
  if (auto ok = how_connected(fd_.get(), "connect"); !ok) return ok;
  if (auto ok = secure(TlsChannel::Side::connector); !ok) return ok;
  auto nonce = random_bytes(kNonceBytes);
  if (!nonce) return nonce.error();
  handshake_.emplace(Handshake::connector(secret_, claims_, *nonce));
  out_ += handshake_->take_output();
  state_ = State::shakes_hands;
  return write();
}

Result<void> SiteConnection::shake_hands() {
  while (state_ == State::shakes_hands) {
    std::array<char, 1024> buffer;
    const ssize_t n = ::recv(fd_.get(), buffer.data(),
                             std::min(handshake_->wanted(), buffer.size()), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n < 0) return errno_error("handshake", errno);
    if (n == 0) return gone();
    auto fed = handshake_->feed({buffer.data(), static_cast<std::size_t>(n)});
    out_ += handshake_->take_output();
    if (!fed) {
      (void)write();  // the other end learns why
      return fed.error();
    }
    if (!handshake_->done()) continue;
    state_ = State::greets;
    Writer greeting;
    greeting.put(greeting_.incarnation);
    greeting.put(greeting_.common);
    out_ += framed<std::uint32_t>(greeting);
  }
  return write();
}

Result<void> SiteConnection::read(TimePoint now, const OnFrame& on_frame) {
  if (state_ == State::shakes_hands) {
    if (auto ok = shake_hands(); !ok || state_ == State::shakes_hands) return ok;
  }
  const std::size_t before = in_.size();
  in_.resize(before + kRead);
  const ssize_t n = ::recv(fd_.get(), in_.data() + before, kRead, MSG_DONTWAIT);
  const int failed = errno;
  in_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  if (n == 0) return gone();
  if (n < 0) {
    return failed == EAGAIN || failed == EINTR ? Result<void>() : errno_error("receive", failed);
  }
  heard_ = now;
  received_ += static_cast<std::uint64_t>(n);
  return take_frames(on_frame);
}

Result<void> SiteConnection::take_frames(const OnFrame& on_frame) {
  std::size_t at = 0;
  Result<void> ok;
  while (ok && in_.size() - at >= sizeof(std::uint32_t)) {
    const std::string_view rest = std::string_view(in_).substr(at);
    const std::size_t size = Reader(rest).get<std::uint32_t>();
    if (size > kMostSiteMessage || (state_ == State::greets && size != kSiteGreeting)) {
      return Error{.code = Errc::protocol, .what = "the other end sends something else"};
    }
    if (rest.size() < sizeof(std::uint32_t) + size) break;
    const std::string_view frame = rest.substr(sizeof(std::uint32_t), size);
    at += sizeof(std::uint32_t) + size;
    if (state_ == State::greets) {
      const int site = connects_ ? claims_.to_rank : handshake_->peer().from_rank;
      Reader greeting(frame);
      peer_ = SiteMember{site, greeting.get<std::uint64_t>()};
      common_ = greeting.get<std::uint64_t>();
      state_ = State::up;
    }
    ok = on_frame(frame);
  }
  in_.erase(0, at);
  return ok;
}

void SiteConnection::send(const std::string& message) {
  Writer out;
  out.put_string(message);
  soon_.push_back(out.take());
}

void SiteConnection::say_last(const std::string& message) {
  if (state_ != State::up) return;
  later_.clear();
  send(message);
  (void)write();
}

// False: there is nothing to write.
bool SiteConnection::refill() {
  out_.clear();
  written_ = 0;
  if (state_ != State::up) return false;
  for (; !soon_.empty(); soon_.pop_front()) out_ += soon_.front();
  while (out_.empty() && !later_.empty()) {
    const std::string message = later_.front()();
    later_.pop_front();
    if (message.empty()) continue;
    Writer out;
    out.put_string(message);
    out_ = out.take();
  }
  return !out_.empty();
}

Result<void> SiteConnection::write() {
  while (written_ < out_.size() || refill()) {
    const ssize_t n = ::send(fd_.get(), out_.data() + written_, out_.size() - written_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (n < 0) return errno_error("send", errno);
    written_ += static_cast<std::size_t>(n);
    sent_ += static_cast<std::uint64_t>(n);
  }
  return {};
}

}  // namespace dlaunch
