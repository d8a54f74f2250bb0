#include "launcher/wire/leader_link.h"

#include <resolv.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <asio/connect.hpp>
#include <asio/write.hpp>
#include <fmt/format.h>

#include "base/socket.h"
#include "base/units.h"
#include "launcher/wire/node_message.h"
#include "rendezvous/tls_tunnel.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;

constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(1);

// At random, so that hosts that wait for the same leader do not come all at once.
Duration some_of(Duration pause) {
  const auto random = random_bytes(1);
  return jittered(pause, random ? static_cast<unsigned char>((*random)[0]) : 128);
}

// Names are resolved in the loop: a silent server must not block it for long.
void resolve_impatiently() {
  if (::res_init() != 0) return;
  _res.retrans = 1;
  _res.retry = 1;
}

// An attempt waits for an address that drops packets until its time is up.
std::vector<tcp::endpoint> beginning_with(std::size_t turn,
                                          const tcp::resolver::results_type& found) {
  std::vector<tcp::endpoint> addresses;
  for (const auto& one : found) addresses.push_back(one.endpoint());
  const auto first = static_cast<std::ptrdiff_t>(turn % std::max<std::size_t>(found.size(), 1));
  std::rotate(addresses.begin(), addresses.begin() + first, addresses.end());
  return addresses;
}

}  // namespace

struct LeaderLink::Connection {
  Connection(asio::io_context& loop, Handshake h) : socket(loop), handshake(std::move(h)) {}
  tcp::socket socket;
  std::string local_address;
  Handshake handshake;
  FrameBuffer frames;
  std::array<char, 16384> input{};
  std::string unsent, sending;
  TimePoint heard = steady_now(), origin = heard;
  bool open = false;    // proven
  bool closed = false;  // given up, or left
};

LeaderLink::LeaderLink(asio::io_context& loop, const Endpoint& endpoint, HandshakeIdentity self,
                       const Secret& secret, Duration lease, Handlers handlers)
    : loop_(loop),
      endpoint_(endpoint),
      self_(std::move(self)),
      secret_(secret),
      lease_(lease),
      handlers_(std::move(handlers)),
      timer_(loop, [this] { beat(); }),
      pause_(kFirstPause) {}

LeaderLink::~LeaderLink() { stop(); }

void LeaderLink::start() {
  resolve_impatiently();
  attempt();
  beat();
}

void LeaderLink::stop() {
  stopped_ = true;
  timer_.arm(kNever);
  if (!connection_) return;
  connection_->closed = true;
  asio::error_code ec;
  if (connection_->sending.empty()) connection_->socket.close(ec);
}

void LeaderLink::attempt() {
  auto nonce = random_bytes(kNonceBytes);
  if (!nonce) return handlers_.failed({.why = nonce.error().what, .final = true});
  connection_ =
      std::make_shared<Connection>(loop_, Handshake::connector(secret_, self_, std::move(*nonce)));
  asio::error_code ec;
  tcp::resolver resolver(loop_);
  const auto found = resolver.resolve(endpoint_.host, std::to_string(endpoint_.port), ec);
  const auto connection = connection_;
  if (ec) {
    const auto why = fmt::format("resolve '{}': {}", endpoint_.host, ec.message());
    return give_up(connection, {.why = why});
  }
  asio::async_connect(connection->socket, beginning_with(failed_attempts_, found),
                      [this, connection](asio::error_code error, const tcp::endpoint&) {
                        if (connection->closed) return;
                        if (!error) return connected(connection);
                        give_up(connection, {.why = error.message(),
                                             .refused = error == asio::error::connection_refused});
                      });
}

void LeaderLink::connected(const ConnectionPtr& connection) {
  asio::error_code ec;
  const auto local = connection->socket.local_endpoint(ec);
  if (!ec) connection->local_address = local.address().to_string();
  connection->socket.set_option(tcp::no_delay(true), ec);
  if (auto ok = secure(connection->socket); !ok) {
    return give_up(connection, {.why = ok.error().what});
  }
  connection->socket.non_blocking(true, ec);
  if (ec) return give_up(connection, {.why = ec.message()});
  retry_steadily(connection->socket.native_handle());
  connection->heard = steady_now();
  connection->unsent = connection->handshake.take_output();
  flush(connection);
  read(connection);
}

// An asynchronous read may have taken bytes long before its handler runs, and hear_out() would miss
// them. So the bytes stay in the socket until we take them.
void LeaderLink::read(const ConnectionPtr& connection) {
  connection->socket.async_wait(tcp::socket::wait_read, [this, connection](asio::error_code error) {
    if (connection->closed) return;
    std::size_t size = 0;
    if (!error) size = connection->socket.read_some(asio::buffer(connection->input), error);
    if (error == asio::error::would_block) return read(connection);  // hear_out() has taken all
    if (error) return give_up(connection, {.why = error.message()});
    connection->heard = steady_now();
    if (take(connection, {connection->input.data(), size})) read(connection);
  });
}

void LeaderLink::hear_out() {
  const auto connection = connection_;
  if (!connection || connection->closed || !connection->open) return;
  asio::error_code error;
  while (!error) {
    const auto size = connection->socket.read_some(asio::buffer(connection->input), error);
    if (!error && !take(connection, {connection->input.data(), size})) return;
  }
}

// False: the connection is over.
bool LeaderLink::take(const ConnectionPtr& connection, std::string_view bytes) {
  if (!connection->open) {
    const auto used = connection->handshake.feed(bytes);
    connection->unsent += connection->handshake.take_output();
    if (connection->sending.empty()) flush(connection);
    if (!used) {
      give_up(connection, {.why = used.error().what, .final = used.error().code == Errc::auth});
      return false;
    }
    bytes.remove_prefix(*used);
    if (!connection->handshake.done()) return true;
    connection->open = true;
    connection->origin = steady_now();
    pause_ = kFirstPause;
    handlers_.opened();
  }
  connection->frames.append(bytes);
  while (!connection->closed) {
    const auto frame = connection->frames.next();
    if (!frame) {
      give_up(connection, {.why = frame.error().what});
      return false;
    }
    if (!*frame) return true;
    if (!(*frame)->empty()) handlers_.message(**frame);
  }
  return false;
}

void LeaderLink::send(const std::string& frame) {
  if (!connection_ || connection_->closed || !connection_->open) return;
  connection_->unsent += frame;
  if (connection_->sending.empty()) flush(connection_);
}

// Puts the socket behind a tunnel, if the job wants it.
Result<void> LeaderLink::secure(tcp::socket& socket) const {
  if (!secret_.encrypts()) return {};
  asio::error_code ec;
  UniqueFd fd(socket.release(ec));
  if (ec) return errno_error("TLS", ec.value());
  auto secured = tls_tunnel(std::move(fd), TlsChannel::Side::connector, secret_);
  if (!secured) return secured.error();
  socket.assign(tcp::v4(), secured->get(), ec);
  if (ec) return errno_error("TLS", ec.value());
  secured->release();
  return {};
}

std::string LeaderLink::local_address() const {
  return connection_ ? connection_->local_address : "";
}

TimePoint LeaderLink::origin() const { return connection_->origin; }

void LeaderLink::flush(const ConnectionPtr& connection) {
  if (connection->unsent.empty()) return;
  connection->sending = std::exchange(connection->unsent, {});
  asio::async_write(connection->socket, asio::buffer(connection->sending),
                    [this, connection](asio::error_code error, std::size_t) {
                      connection->sending.clear();
                      if (connection->closed) {
                        asio::error_code ec;
                        connection->socket.close(ec);
                      } else if (error) {
                        give_up(connection, {.why = error.message()});
                      } else {
                        flush(connection);
                      }
                    });
}

void LeaderLink::give_up(const ConnectionPtr& connection, Failure failure) {
  if (stopped_ || std::exchange(connection->closed, true)) return;
  asio::error_code ec;
  connection->socket.close(ec);
  if (!connection->open) ++failed_attempts_;
  failure.why = fmt::format("{}: {}", to_string(endpoint_), failure.why);
  connection->open ? handlers_.lost(failure.why) : handlers_.failed(failure);
}

// Also handles the time of the next attempt.
void LeaderLink::beat() {
  if (stopped_) return;
  Duration next = kBeat;
  if (connection_->closed) {
    attempt();
    pause_ = std::min(pause_ * 2, kLongestPause);
    next = some_of(pause_);
  } else if (stood_still(beat_due_)) {
    connection_->heard = steady_now();  // we were not running, so could not hear anything
    send(kBeatFrame);
  } else if (steady_now() > connection_->heard + lease_) {
    give_up(connection_, {.why = "nothing was heard for " + format_duration(lease_)});
  } else {
    send(kBeatFrame);
    if (!connection_->open) next = kFirstPause;
  }
  if (stopped_) return;
  beat_due_ = steady_now() + next;
  timer_.arm(beat_due_);
}

}  // namespace dlaunch
