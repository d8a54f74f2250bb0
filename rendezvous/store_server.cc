#include "rendezvous/store_server.h"

#include <sys/socket.h>

#include <array>
#include <map>

#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <fmt/format.h>

#include "base/complaints.h"
#include "base/socket.h"
#include "base/unique_fd.h"
#include "rendezvous/crowd.h"
#include "rendezvous/handshake.h"
#include "rendezvous/store_core.h"
#include "rendezvous/tls_tunnel.h"

namespace dlaunch {

using asio::ip::tcp;

namespace {

constexpr std::size_t kMaxUnsent = 16 << 20;
constexpr Duration kAcceptPause = std::chrono::milliseconds(50);

// One client. Pending asynchronous operations share ownership: the last to end frees it.
struct Session {
  Session(StoreCore::Connection i, tcp::socket s, std::string from, Handshake h)
      : id(i), socket(std::move(s)), address(std::move(from)), handshake(std::move(h)) {}
  const StoreCore::Connection id;  // in the order of arrival
  tcp::socket socket;
  const std::string address;  // of the peer
  Handshake handshake;
  bool proven = false;
  bool node = false;     // of Purpose::node
  bool output = false;   // of Purpose::output: handed on once all is sent
  bool ending = false;   // close it once all is sent
  bool parting = false;  // the other end closes it
  bool closed = false;
  const TimePoint since = steady_now();
  FrameBuffer frames;
  std::array<char, 4096> input{};
  std::string unsent;
  std::string sending;
};
using SessionPtr = std::shared_ptr<Session>;

}  // namespace

struct StoreServer::Impl {
  Impl(asio::io_context& loop, StoreServerOptions opts)
      : options(std::move(opts)), acceptor(loop), core_timer(loop), guard_timer(loop) {}

  Result<void> listen();
  void accept();
  void take_one();
  void admit(tcp::socket socket, const std::string& from);
  void read(const SessionPtr& session);
  bool on_bytes(const SessionPtr& session, std::string_view bytes);
  bool on_handshake(const SessionPtr& session, std::string_view& bytes);
  bool on_frames(const SessionPtr& session);
  void deliver(const std::vector<StoreCore::Answer>& answers);
  void send(const SessionPtr& session, const std::string& bytes);
  void flush(const SessionPtr& session);
  void close(const SessionPtr& session);
  void part(const SessionPtr& session);
  void hand_on(const SessionPtr& session);
  void complain(const Session& session, const std::string& what);
  void arm_core_timer();
  Crowd crowd() const;
  void arm_guard_timer(TimePoint now);
  void on_guard_timer();

  StoreServerOptions options;
  tcp::acceptor acceptor;
  asio::steady_timer core_timer;
  asio::steady_timer guard_timer;  // handshake deadlines, and a pause after a failed accept
  StoreCore core;
  std::map<StoreCore::Connection, SessionPtr> sessions;  // proven ones
  std::map<StoreCore::Connection, SessionPtr> unproven;  // the oldest first
  StoreCore::Connection next_id = 1;
  bool accepting = false;
  TimePoint pause_until{};  // after an accept that failed
  std::uint64_t dropped = 0;
  Complaints complaints;
  // Handlers that run after the server is gone find this expired.
  std::shared_ptr<bool> here = std::make_shared<bool>(true);
};

Result<void> StoreServer::Impl::listen() {
  const auto context = "store: listen on " + to_string(options.listen);
  asio::error_code ec;
  tcp::resolver resolver(acceptor.get_executor());
  const auto found = resolver.resolve(options.listen.host, std::to_string(options.listen.port),
                                      tcp::resolver::passive, ec);
  if (ec || found.empty()) {
    return Error{.code = Errc::io, .what = context + ": cannot resolve the host name"};
  }
  const tcp::endpoint where = found.begin()->endpoint();
  // Sockets are made here and not by asio, which cannot make them close-on-exec from the start: in
  // a rank that hosts the store, other threads may fork and exec at any time.
  UniqueFd fd(::socket(where.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno_error(context, errno);
  acceptor.assign(where.protocol(), fd.get(), ec);
  if (!ec) fd.release();
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(where, ec);
  if (!ec) acceptor.listen(1024, ec);
  if (!ec) acceptor.non_blocking(true, ec);
  if (ec) return errno_error(context, ec.value());
  options.listen.port = acceptor.local_endpoint(ec).port();
  accept();
  return {};
}

Crowd StoreServer::Impl::crowd() const {
  return {unproven.size(), unproven.empty() ? TimePoint{} : unproven.begin()->second->since};
}

void StoreServer::Impl::accept() {
  const auto now = steady_now();
  arm_guard_timer(now);
  if (accepting || !acceptor.is_open() || now < pause_until || crowd().full(now)) return;
  accepting = true;
  acceptor.async_wait(tcp::acceptor::wait_read,
                      [this, alive = std::weak_ptr(here)](asio::error_code ec) {
                        if (alive.expired() || ec == asio::error::operation_aborted) return;
                        accepting = false;
                        take_one();
                        accept();
                      });
}

void StoreServer::Impl::take_one() {
  tcp::endpoint from;
  auto size = static_cast<socklen_t>(from.capacity());
  UniqueFd fd(
      ::accept4(acceptor.native_handle(), from.data(), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    // The client may have left. Otherwise we are out of descriptors or memory: the backlog waits a
    // while.
    const bool gone = errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
    if (!gone) pause_until = steady_now() + kAcceptPause;
    return;
  }
  auto secure = secured(std::move(fd), TlsChannel::Side::acceptor, options.secret);
  if (!secure) {
    pause_until = steady_now() + kAcceptPause;
    return;
  }
  asio::error_code ec;
  tcp::socket socket(acceptor.get_executor());
  socket.assign(from.protocol(), secure->get(), ec);
  if (ec) return;
  secure->release();
  admit(std::move(socket), from.address().to_string());
}

void StoreServer::Impl::admit(tcp::socket socket, const std::string& from) {
  asio::error_code ec;
  socket.non_blocking(true, ec);
  socket.set_option(tcp::no_delay(true), ec);
  auto nonce = random_bytes(kNonceBytes);
  if (!nonce) return;
  HandshakeIdentity self{.purpose = Purpose::store, .job_id = options.job_id};
  auto session =
      std::make_shared<Session>(next_id++, std::move(socket), from,
                                Handshake::acceptor(options.secret, self, std::move(*nonce)));
  unproven.emplace(session->id, session);
  read(session);
  if (crowd().overfull()) {
    ++dropped;
    close(unproven.begin()->second);
  }
}

// Sets it to the time when the oldest stranger is due or an accept may be tried again.
void StoreServer::Impl::arm_guard_timer(TimePoint now) {
  const auto when = std::min(now < pause_until ? pause_until : kNever, crowd().deadline(now));
  if (guard_timer.expiry() == when) return;
  guard_timer.expires_at(when);
  if (when == kNever) return;
  guard_timer.async_wait([this, alive = std::weak_ptr(here)](asio::error_code ec) {
    if (!alive.expired() && !ec) on_guard_timer();
  });
}

void StoreServer::Impl::on_guard_timer() {
  guard_timer.expires_at(TimePoint::min());  // not set
  const auto now = steady_now();
  while (!unproven.empty() && unproven.begin()->second->since + kHandshakeTimeout <= now) {
    ++dropped;
    close(unproven.begin()->second);
  }
  accept();
}

void StoreServer::Impl::read(const SessionPtr& session) {
  session->socket.async_read_some(
      asio::buffer(session->input),
      [this, session, alive = std::weak_ptr(here)](asio::error_code ec, std::size_t size) {
        if (alive.expired() || session->closed) return;
        if (ec || !on_bytes(session, std::string_view(session->input.data(), size))) {
          if (!session->proven) ++dropped;
          return close(session);
        }
        // The rest is for the reader to which it is handed on.
        if (!session->output) read(session);
      });
}

// False: close the connection.
bool StoreServer::Impl::on_bytes(const SessionPtr& session, std::string_view bytes) {
  if (session->parting) return true;
  if (!session->proven && !on_handshake(session, bytes)) return false;
  session->frames.append(bytes);
  return !session->proven || on_frames(session);
}

bool StoreServer::Impl::on_handshake(const SessionPtr& session, std::string_view& bytes) {
  const auto used = session->handshake.feed(bytes);
  if (auto out = session->handshake.take_output(); !out.empty()) send(session, out);
  if (!used) {
    // A stranger of another job gets a refusal and is named in the log; one that does not speak the
    // protocol is not.
    const auto& why = used.error();
    if (why.code == Errc::auth) complain(*session, "refused a connection: " + why.what);
    return false;
  }
  bytes.remove_prefix(*used);
  if (!session->handshake.done()) return true;
  session->proven = true;
  session->node = session->handshake.peer().purpose == Purpose::node;
  session->output = session->handshake.peer().purpose == Purpose::output;
  unproven.erase(session->id);
  sessions.emplace(session->id, session);
  accept();
  if (session->output && !bytes.empty()) {
    complain(*session, session->handshake.peer().who + " did not wait for our welcome");
    return false;
  }
  if (session->output) return options.nodes && options.nodes->output;
  if (!session->node) return true;
  retry_steadily(session->socket.native_handle());
  if (!options.nodes) {
    session->node = false;
    complain(*session, "this job runs on one host; refused " + session->handshake.peer().who);
    return false;
  }
  options.nodes->opened(session->id, session->address);
  return !session->closed;
}

bool StoreServer::Impl::on_frames(const SessionPtr& session) {
  while (true) {
    const auto message = session->frames.next();
    if (message && !message->has_value()) return true;
    if (message && session->node) {
      options.nodes->message(session->id, **message);
      if (session->closed) return false;
      continue;
    }
    auto request = message ? decode_request(**message) : message.error();
    if (!request) {
      ++dropped;
      complain(*session, "closed the connection of " + session->handshake.peer().who + ": " +
                             request.error().what);
      return false;
    }
    deliver(core.step(steady_now(), StoreCore::Asked{session->id, std::move(*request)}));
    if (session->closed) return false;
  }
}

void StoreServer::Impl::deliver(const std::vector<StoreCore::Answer>& answers) {
  for (const auto& answer : answers) {
    if (const auto it = sessions.find(answer.to); it != sessions.end()) {
      send(SessionPtr(it->second), encode(answer.reply));
    }
  }
  arm_core_timer();
}

void StoreServer::Impl::arm_core_timer() {
  const auto deadline = core.deadline();
  if (!deadline) {
    core_timer.cancel();
    return;
  }
  if (core_timer.expiry() == *deadline) return;
  core_timer.expires_at(*deadline);
  core_timer.async_wait([this, alive = std::weak_ptr(here)](asio::error_code ec) {
    if (alive.expired() || ec) return;
    core_timer.expires_at(TimePoint::min());
    deliver(core.step(steady_now(), StoreCore::Deadline{}));
  });
}

void StoreServer::Impl::send(const SessionPtr& session, const std::string& bytes) {
  if (session->closed) return;
  session->unsent += bytes;
  if (session->sending.size() + session->unsent.size() > kMaxUnsent) {
    ++dropped;
    complain(*session, "closed the connection of " + session->handshake.peer().who +
                           ", which does not read what it asks for");
    return close(session);
  }
  if (session->sending.empty()) flush(session);
}

void StoreServer::Impl::flush(const SessionPtr& session) {
  session->sending.swap(session->unsent);
  asio::async_write(session->socket, asio::buffer(session->sending),
                    [this, session, alive = std::weak_ptr(here)](asio::error_code ec, std::size_t) {
                      session->sending.clear();
                      if (alive.expired() || session->closed) return;
                      if (ec) return close(session);
                      if (!session->unsent.empty()) return flush(session);
                      if (session->ending) return close(session);
                      if (session->parting) part(session);
                      if (session->output) hand_on(session);
                    });
}

void StoreServer::Impl::close(const SessionPtr& session) {
  if (std::exchange(session->closed, true)) return;
  const SessionPtr keep = session;  // the erase below may drop the caller's reference
  unproven.erase(keep->id);
  keep->unsent = {};
  asio::error_code ec;
  // A refusal that is still being sent gets out: it is small, so the kernel takes it at once.
  // Replies do not delay the close: a peer that does not read would keep them in memory for ever.
  if (keep->proven || keep->sending.empty())
    keep->socket.close(ec);
  else
    keep->socket.shutdown(tcp::socket::shutdown_receive, ec);
  const bool known = sessions.erase(keep->id) > 0;
  if (known && keep->node) options.nodes->closed(keep->id);
  if (known && !keep->node) deliver(core.step(steady_now(), StoreCore::Closed{keep->id}));
  accept();
}

// It has got our welcome, and may begin to write.
void StoreServer::Impl::hand_on(const SessionPtr& session) {
  asio::error_code ec;
  UniqueFd fd(session->socket.release(ec));
  const HandshakeIdentity peer = session->handshake.peer();
  close(session);
  if (!ec && options.nodes) options.nodes->output(std::move(fd), peer.from_rank, peer.to_rank);
}

// The peer sees our end after all that was sent.
void StoreServer::Impl::part(const SessionPtr& session) {
  session->parting = true;
  asio::error_code ec;
  if (session->sending.empty()) session->socket.shutdown(tcp::socket::shutdown_send, ec);
}

void StoreServer::Impl::complain(const Session& session, const std::string& what) {
  complaints.warn(session.address, fmt::format("store: from {}: {}", session.address, what));
}

StoreServer::StoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StoreServer::~StoreServer() {
  impl_->here.reset();
  asio::error_code ec;
  impl_->acceptor.close(ec);
  for (const auto& [id, session] : impl_->sessions) session->socket.close(ec);
  for (const auto& [id, session] : impl_->unproven) session->socket.close(ec);
}

Result<std::unique_ptr<StoreServer>> StoreServer::open(asio::io_context& loop,
                                                       StoreServerOptions options) {
  auto impl = std::make_unique<Impl>(loop, std::move(options));
  if (auto listening = impl->listen(); !listening) return listening.error();
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(impl)));
}

void StoreServer::send(NodeHandlers::Link link, const std::string& frame) {
  const auto found = impl_->sessions.find(link);
  if (found != impl_->sessions.end()) impl_->send(SessionPtr(found->second), frame);
}

void StoreServer::close(NodeHandlers::Link link) {
  const auto found = impl_->sessions.find(link);
  if (found == impl_->sessions.end()) return;
  const SessionPtr session = found->second;
  session->ending = true;
  if (session->sending.empty()) impl_->close(session);
}

void StoreServer::part(NodeHandlers::Link link) {
  const auto found = impl_->sessions.find(link);
  if (found != impl_->sessions.end()) impl_->part(found->second);
}

Endpoint StoreServer::endpoint() const { return impl_->options.listen; }
std::uint64_t StoreServer::dropped() const { return impl_->dropped; }

}  // namespace dlaunch
