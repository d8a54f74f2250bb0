#include "ring/links/connections.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>

#include <fmt/format.h>

#include "base/address.h"
#include "base/contract.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/quiet_thread.h"
#include "base/socket.h"
#include "rendezvous/tls_tunnel.h"
#include "ring/links/descriptor_limit.h"

namespace dlaunch {
namespace {

// Between attempts: the first pause, and the longest.
constexpr Duration kRetryPause = std::chrono::milliseconds(20),
                   kLongPause = std::chrono::seconds(1);
// Longer than a few lost packets take, shorter than users wait without a message.
constexpr Duration kWarnOfSilence = std::chrono::seconds(5);
// In polled_, before the strangers.
constexpr std::size_t kOwnEvents = 3;
// Until a process without room for descriptors tries to accept again.
constexpr Duration kRoomPause = std::chrono::milliseconds(500);

struct Shared {
  std::mutex mutex;
  std::vector<std::weak_ptr<Connections>> all;
};

Shared& shared() {
  static auto* const made = new Shared;
  return *made;
}

// Moves the handshake on as far as the socket allows. Only as many bytes are read as the handshake
// wants, so the peer's first data stays in the socket.
Result<void> move_on(Handshake& handshake, int fd) {
  char buffer[256];
  while (!handshake.done()) {
    const auto want = std::min(handshake.wanted(), sizeof buffer);
    const ssize_t n = ::recv(fd, buffer, want, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (n < 0) return errno_error("handshake", errno);
    if (n == 0) return Error{.code = Errc::io, .what = "closed during the handshake"};
    failpoint("listener.read");
    const auto fed = handshake.feed({buffer, static_cast<std::size_t>(n)});
    // Handshake messages are small: a fresh socket's buffer always takes them whole.
    const auto out = handshake.take_output();
    if (!out.empty()) (void)::send(fd, out.data(), out.size(), MSG_NOSIGNAL);
    failpoint("listener.answered");
    if (!fed) return fed.error();
  }
  return {};
}

// The job in a link_id_of().
std::string_view job_of(std::string_view link_id) {
  return link_id.substr(0, link_id.find_first_of("@/#"));
}

bool is_for(const HandshakeIdentity& self, const HandshakeIdentity& claimed) {
  return self.job_id == claimed.job_id && self.round == claimed.round &&
         self.to_rank == claimed.to_rank;
}

}  // namespace

std::string link_id_of(std::string_view link_id, std::string_view instance) {
  return fmt::format("{}#{}", job_of(link_id), instance);
}

Connections::Connections(Key key, const Secret& secret, Listener listener)
    : key_(std::move(key)), secret_(secret), listener_(std::move(listener)) {}

Result<std::shared_ptr<Connections>> Connections::of_process(const Secret& secret,
                                                             const std::string& address,
                                                             bool with_unix, PortRange ports) {
  Key key{::getpid(), secret.bytes(), secret.encrypts(), address, with_unix, ports};
  const std::lock_guard lock(shared().mutex);
  std::erase_if(shared().all, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : shared().all) {
    auto known = weak.lock();
    if (known && known->key_ == key && !known->is_over_) return known;
  }
  auto listener = Listener::open(address, with_unix, ports);
  if (!listener) return listener.error();
  std::shared_ptr<Connections> made(new Connections(std::move(key), secret, std::move(*listener)));
  made->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made->wake_) return errno_error("listen: make an eventfd", errno);
  auto thread = start_quiet_thread([raw = made.get()] { raw->main(); });
  if (!thread) return thread.error();
  made->thread_ = std::move(*thread);
  shared().all.push_back(made);
  return made;
}

Connections::~Connections() { stop(); }

void Connections::stop() {
  is_over_ = true;
  {
    const std::lock_guard lock(orders_mutex_);
    stops_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  const std::lock_guard lock(stop_mutex_);
  if (thread_.joinable()) thread_.join();
}

// The thread does not exist in the child. What it may have been changing stays as it is.
void Connections::close_in_child() {
  listener_.close();
  wake_.reset();
}

std::uint64_t Connections::add(const HandshakeIdentity& self, Client& client) {
  const std::lock_guard lock(clients_mutex_);
  clients_[++last_client_] = {self, &client};
  return last_client_;
}

void Connections::remove(std::uint64_t id) {
  {
    const std::lock_guard lock(clients_mutex_);
    clients_.erase(id);
  }
  ::eventfd_write(wake_.get(), 1);
}

void Connections::forget_orders_of_removed() {
  const std::lock_guard lock(clients_mutex_);
  std::erase_if(attempts_,
                [this](const Attempt& attempt) { return !clients_.contains(attempt.client); });
}

void Connections::connect(std::uint64_t id, std::uint64_t order, Target to,
                          HandshakeIdentity self) {
  {
    const std::lock_guard lock(orders_mutex_);
    Attempt attempt;
    attempt.client = id;
    attempt.order = order;
    attempt.to = std::move(to);
    attempt.self = std::move(self);
    orders_.push_back(std::move(attempt));
  }
  ::eventfd_write(wake_.get(), 1);
}

void Connections::post(std::uint64_t id, std::uint64_t what) {
  {
    const std::lock_guard lock(orders_mutex_);
    posted_.push_back({id, what});
  }
  ::eventfd_write(wake_.get(), 1);
}

// A turn welcomes a connection and hands it over: what was posted after the welcome is of a later
// turn.
void Connections::take_posted() {
  std::vector<Posted> posted;
  {
    const std::lock_guard lock(orders_mutex_);
    posted.swap(posted_);
  }
  const std::lock_guard lock(clients_mutex_);
  for (const Posted& one : posted) {
    const auto client = clients_.find(one.client);
    if (client != clients_.end()) client->second.client->on_posted(one.what);
  }
}

void Connections::main() try {
  while (turn()) {
  }
} catch (const std::exception&) {
  is_over_ = true;
  listener_.close();
  fail({.code = Errc::io, .what = "out of memory"});
}

// False: it stops.
bool Connections::turn() {
  wait();
  if (polled_[0].revents != 0) {
    eventfd_t count;
    ::eventfd_read(wake_.get(), &count);
    const std::lock_guard lock(orders_mutex_);
    if (stops_) return false;
  }
  const TimePoint now = steady_now();
  const pollfd* next = polled_.data() + kOwnEvents + strangers_.size();
  for (auto& attempt : attempts_) advance(attempt, (next++)->revents, now);
  forget_orders_of_removed();
  advance_strangers(polled_.data() + kOwnEvents, now);
  lacks_room_ = false;
  for (const bool by_unix : {true, false}) {
    if (polled_[by_unix ? 1 : 2].revents != 0) lacks_room_ |= !let_in(by_unix);
  }
  take_posted();
  take_orders();
  return true;
}

// Fills polled_: the event, the two listening sockets, the strangers, the attempts.
void Connections::wait() {
  const TimePoint now = steady_now();
  const bool lets_in = !crowd().full(now) && !lacks_room_;
  polled_.clear();
  polled_.reserve(kOwnEvents + strangers_.size() + attempts_.size());
  polled_.push_back({wake_.get(), POLLIN, 0});
  polled_.push_back({lets_in ? listener_.unix_socket().get() : -1, POLLIN, 0});
  polled_.push_back({lets_in ? listener_.tcp_socket().get() : -1, POLLIN, 0});
  for (const auto& stranger : strangers_) polled_.push_back({stranger.fd.get(), POLLIN, 0});
  for (const auto& attempt : attempts_) {
    const short events = attempt.connecting ? POLLOUT : POLLIN;
    polled_.push_back({attempt.fd.get(), events, 0});
  }
  (void)::poll(polled_.data(), polled_.size(), poll_timeout_ms(now, next_time(now)));
}

TimePoint Connections::next_time(TimePoint now) const {
  TimePoint next = crowd().deadline(now);
  if (lacks_room_) next = std::min(next, now + kRoomPause);
  for (const auto& attempt : attempts_) next = std::min(next, attempt.next);
  return next;
}

Crowd Connections::crowd() const {
  return {strangers_.size(), strangers_.empty() ? TimePoint{} : strangers_.front().since};
}

// -- Connections that come

// That of the rank which the connector means. One of this job that is not here has given up, or
// comes in a moment: there is no answer. To those of other jobs a rank that is here shows what
// differs.
std::optional<HandshakeIdentity> Connections::expected_for(const HandshakeIdentity& claimed) {
  const std::lock_guard lock(clients_mutex_);
  bool of_job = false;
  for (const auto& [id, added] : clients_) {
    const HandshakeIdentity& self = added.self;
    if (is_for(self, claimed)) return self;
    of_job |= job_of(self.job_id) == job_of(claimed.job_id);
  }
  if (of_job || clients_.empty()) return {};
  HandshakeIdentity other = clients_.begin()->second.self;
  other.job_id = job_of(other.job_id);
  return other;
}

void Connections::advance_strangers(const pollfd* polled, TimePoint now) {
  for (auto it = strangers_.begin(); it != strangers_.end(); ++polled) {
    Stranger& stranger = *it;
    const auto moved =
        polled->revents != 0 ? move_on(stranger.handshake, stranger.fd.get()) : Result<void>();
    if (!moved && moved.error().code == Errc::auth) {
      complaints_.warn(stranger.address,
                       "refused a connection from " + stranger.address + ": " + moved.error().what);
    }
    const bool done = moved && stranger.handshake.done();
    if (done) proven(stranger);
    const bool late = stranger.since + kHandshakeTimeout <= now;
    it = done || !moved || late ? strangers_.erase(it) : std::next(it);
  }
}

void Connections::proven(Stranger& stranger) {
  failpoint("listener.proven");
  const HandshakeIdentity& from = stranger.handshake.peer();
  const std::lock_guard lock(clients_mutex_);
  for (const auto& [id, added] : clients_) {
    if (!is_for(added.self, from)) continue;
    return added.client->on_connection(std::move(stranger.fd), from, stranger.is_unix);
  }
}

// False: there is no room for another descriptor.
bool Connections::let_in(bool by_unix) {
  allow_descriptors(1);
  SocketAddress from;
  const int listening = (by_unix ? listener_.unix_socket() : listener_.tcp_socket()).get();
  UniqueFd fd(::accept4(listening, from.get(), &from.size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    // A peer that hung up while it waited does not matter.
    if (!lacks_descriptors(errno)) return true;
    fail(errno_error("accept a peer's connection", errno));
    return false;
  }
  if (!by_unix) {
    auto secure = secured(std::move(fd), TlsChannel::Side::acceptor, secret_);
    if (!secure) {
      fail(secure.error());
      return false;
    }
    fd = std::move(*secure);
  }
  auto nonce = random_bytes(kNonceBytes);
  if (!nonce) return true;
  strangers_.push_back(
      {std::move(fd), by_unix, by_unix ? "this host" : numeric_host(from),
       Handshake::acceptor(
           secret_, [this](const HandshakeIdentity& claimed) { return expected_for(claimed); },
           *nonce),
       steady_now()});
  if (crowd().overfull()) strangers_.pop_front();
  return true;
}

// -- Connections that are ordered

void Connections::take_orders() {
  std::vector<Attempt> orders;
  {
    const std::lock_guard lock(orders_mutex_);
    orders.swap(orders_);
  }
  const TimePoint now = steady_now();
  for (Attempt& order : orders) {
    attempts_.push_back(std::move(order));
    begin(attempts_.back(), now);
  }
}

void Connections::advance(Attempt& attempt, short events, TimePoint now) {
  if (!attempt.fd) {
    if (now >= attempt.next) begin(attempt, now);
    return;
  }
  if (events == 0) {
    if (now < attempt.next) return;
    attempt.next = kNever;
    return attempt.connecting ? warn(attempt, "no answer", now) : void();
  }
  if (attempt.connecting) {
    attempt.connecting = false;
    auto ok = end_of_connect(attempt.fd.get(), attempt.to.tcp);
    if (ok) ok = begin_handshake(attempt);
    return ok ? void() : tried(attempt, ok.error(), now);
  }
  const auto moved = move_on(*attempt.handshake, attempt.fd.get());
  if (!moved) return tried(attempt, moved.error(), now);
  if (attempt.handshake->done()) made(attempt, std::move(attempt.fd));
}

// Connecting does not wait for the other process, even if that stands still.
void Connections::begin(Attempt& attempt, TimePoint now) {
  if (attempt.since == TimePoint{}) attempt.since = now;
  attempt.next = now + kWarnOfSilence;
  attempt.is_unix = false;
  allow_descriptors(1);
  if (!attempt.to.unix_name.empty()) {
    auto local = connect_unix(attempt.to.unix_name, SOCK_NONBLOCK);
    if (local) {
      attempt.is_unix = true;
      attempt.fd = std::move(*local);
      const auto ok = begin_handshake(attempt);
      return ok ? void() : tried(attempt, ok.error(), now);
    }
    if (local.error().os_errno == EAGAIN) return tried(attempt, local.error(), now);
  }
  auto fd = begin_to_connect_tcp(attempt.to.tcp);
  if (!fd) return tried(attempt, fd.error(), now);
  attempt.fd = std::move(*fd);
  attempt.connecting = true;
}

Result<void> Connections::begin_handshake(Attempt& attempt) {
  if (!attempt.is_unix) {
    auto secure = secured(std::move(attempt.fd), TlsChannel::Side::connector, secret_);
    if (!secure) return secure.error();
    attempt.fd = std::move(*secure);
  }
  auto nonce = random_bytes(kNonceBytes);
  if (!nonce) return nonce.error();
  failpoint("connections.before_hello");
  attempt.handshake =
      std::make_unique<Handshake>(Handshake::connector(secret_, attempt.self, *nonce));
  const auto hello = attempt.handshake->take_output();
  if (::send(attempt.fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL) < 0) {
    return errno_error("handshake", errno);
  }
  return {};
}

void Connections::tried(Attempt& attempt, const Error& error, TimePoint now) {
  attempt.fd.reset();
  attempt.connecting = false;
  attempt.handshake.reset();
  bool tries_on = !lacks_descriptors(error.os_errno);
  if (tries_on) {
    const std::lock_guard lock(clients_mutex_);
    const auto client = clients_.find(attempt.client);
    tries_on = client != clients_.end() && client->second.client->tries_on(attempt.order, error);
  }
  if (!tries_on) return made(attempt, error);
  warn(attempt, error.what, now);
  attempt.pause = std::min(kLongPause, std::max(kRetryPause, 2 * attempt.pause));
  attempt.next = now + attempt.pause;
}

void Connections::made(Attempt& attempt, Result<UniqueFd> fd) {
  const std::lock_guard lock(clients_mutex_);
  const auto client = clients_.find(attempt.client);
  attempt.client = 0;
  if (client == clients_.end()) return;
  if (fd) failpoint("connections.made");
  client->second.client->on_made(attempt.order, std::move(fd));
}

// Once, if it takes long. A firewall that drops packets sends no answer. A rank that stands still
// gives none, either, but connects.
void Connections::warn(Attempt& attempt, std::string_view why, TimePoint now) const {
  if (now < attempt.since + kWarnOfSilence || std::exchange(attempt.warned, true)) return;
  log_warn(
      "{} has no connection with {} at {} yet: {}; does a firewall stop them? {} (--port-range) "
      "chooses the ports that ranks listen on",
      attempt.self.who, attempt.to.who, to_string(attempt.to.tcp), why, contract::kPortRange);
}

void Connections::fail(const Error& error) {
  const std::lock_guard lock(clients_mutex_);
  for (const auto& [id, added] : clients_) added.client->on_failure(error);
}

}  // namespace dlaunch
