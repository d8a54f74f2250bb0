#include "rendezvous/tcp_store.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "base/address.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "rendezvous/handshake.h"
#include "rendezvous/tls_tunnel.h"
#include "rendezvous/wire.h"

namespace dlaunch {
namespace {

// The time that waiting requests may take on the wire beyond their own time-out.
constexpr Duration kReplySlack = std::chrono::seconds(5);

// The least time for one address that we connect to.
constexpr Duration kLeastPatience = std::chrono::milliseconds(100);
constexpr Duration kMostPatience = std::chrono::seconds(5);

// False: the server would find the message malformed, and hang up.
bool fits(const StoreRequest& request) {
  return request.key.size() <= kMaxKeyBytes && request.value.size() <= kMaxValueBytes &&
         request.expected.value_or("").size() <= kMaxValueBytes &&
         request.keys.size() <= kMaxWaitKeys &&
         std::all_of(request.keys.begin(), request.keys.end(),
                     [](const auto& key) { return key.size() <= kMaxKeyBytes; });
}

class TcpStore : public Store {
 public:
  TcpStore(UniqueFd fd, Endpoint endpoint) : fd_(std::move(fd)), endpoint_(std::move(endpoint)) {}

  Result<void> set(std::string_view key, std::string_view value, TimePoint deadline) override {
    auto reply =
        call({.op = StoreOp::set, .key = std::string(key), .value = std::string(value)}, deadline);
    if (!reply) return reply.error();
    return {};
  }

  Result<std::string> get(std::string_view key, TimePoint deadline) override {
    auto reply = call({.op = StoreOp::get, .key = std::string(key)}, deadline);
    if (!reply) return reply.error();
    return std::move(reply->value);
  }

  Result<std::optional<std::string>> try_get(std::string_view key, TimePoint deadline) override {
    return optional_value(call({.op = StoreOp::try_get, .key = std::string(key)}, deadline));
  }

  Result<std::string> compare_and_set(std::string_view key,
                                      std::optional<std::string_view> expected,
                                      std::string_view desired, TimePoint deadline) override {
    StoreRequest request{
        .op = StoreOp::compare_and_set, .key = std::string(key), .value = std::string(desired)};
    if (expected) request.expected = std::string(*expected);
    auto value = optional_value(call(std::move(request), deadline));
    if (!value) return value.error();
    return std::move(*value).value_or("");
  }

  Result<std::int64_t> add(std::string_view key, std::int64_t delta, TimePoint deadline) override {
    return number(call({.op = StoreOp::add, .key = std::string(key), .delta = delta}, deadline));
  }

  Result<void> wait(const std::vector<std::string>& keys, TimePoint deadline) override {
    auto reply = call({.op = StoreOp::wait, .keys = keys}, deadline);
    if (!reply) return reply.error();
    return {};
  }

  Result<std::int64_t> delete_prefix(std::string_view prefix, TimePoint deadline) override {
    return number(call({.op = StoreOp::delete_prefix, .key = std::string(prefix)}, deadline));
  }

 private:
  static Result<std::int64_t> number(Result<StoreReply> reply) {
    if (!reply) return reply.error();
    return reply->number;
  }
  static Result<std::optional<std::string>> optional_value(Result<StoreReply> reply) {
    if (!reply) return reply.error();
    if (reply->status == StoreStatus::absent) return std::optional<std::string>();
    return std::optional(std::move(reply->value));
  }

  Result<StoreReply> call(StoreRequest request, TimePoint deadline);
  Result<StoreReply> exchange(std::uint32_t id, std::string_view bytes, TimePoint deadline);
  Result<StoreReply> receive(std::uint32_t id, TimePoint deadline);
  Result<void> send(std::string_view& bytes, TimePoint deadline);
  Result<void> wait_ready(short events, TimePoint deadline);
  Error failed(StoreStatus status, const StoreRequest& request, const std::string& text) const;
  Error lost(const char* what) const {
    return Error{.code = Errc::io,
                 .what = "store at " + to_string(endpoint_) + ": " + what +
                         "; the process that serves it has probably ended"};
  }
  // After a partial read or write, later bytes on this connection are unreliable.
  Error broken(Error why) {
    fd_.reset();
    broken_ =
        Error{.code = Errc::io,
              .what = "store at " + to_string(endpoint_) +
                      ": unusable since an earlier call failed (" + why.what + "); open it again"};
    return why;
  }

  UniqueFd fd_;
  std::optional<Error> broken_;  // the error of every call after the connection is given up
  Endpoint endpoint_;
  FrameBuffer frames_;
  std::uint32_t next_id_ = 1;
};

Result<StoreReply> TcpStore::call(StoreRequest request, TimePoint deadline) {
  if (!fits(request)) {
    return Error{.code = Errc::usage, .what = "store: key or value too long: " + request.key};
  }
  if (broken_) return *broken_;
  request.id = next_id_++;
  const auto now = steady_now();
  request.timeout = deadline == kNever ? Duration::max() : std::max(deadline - now, Duration(0));
  // The server answers a waiting request at its time-out; only a stuck server is later.
  const bool waits = request.op == StoreOp::get || request.op == StoreOp::wait;
  const TimePoint last =
      waits && deadline < kNever - kReplySlack ? deadline + kReplySlack : deadline;
  const auto bytes = encode(request);
  if (bytes.size() > 4 + kMaxFrameBytes) {
    return Error{.code = Errc::usage, .what = "store: one wait has too many keys"};
  }
  auto reply = exchange(request.id, bytes, last);
  if (!reply) return reply.error();
  if (reply->status == StoreStatus::ok || reply->status == StoreStatus::absent) return reply;
  return failed(reply->status, request, reply->value);
}

// A time-out between messages leaves the connection sound: the late reply is skipped by its id. A
// time-out within a message we send does not: the server would read the next request as the rest of
// that one.
Result<StoreReply> TcpStore::exchange(std::uint32_t id, std::string_view bytes,
                                      TimePoint deadline) {
  const auto size = bytes.size();
  if (auto sent = send(bytes, deadline); !sent) {
    const bool whole = sent.error().code == Errc::timeout && bytes.size() == size;
    return whole ? sent.error() : broken(sent.error());
  }
  auto reply = receive(id, deadline);
  if (!reply && reply.error().code != Errc::timeout) return broken(reply.error());
  return reply;
}

Error TcpStore::failed(StoreStatus status, const StoreRequest& request,
                       const std::string& text) const {
  const auto where = "store at " + to_string(endpoint_) + ": ";
  if (status == StoreStatus::timeout) {
    return Error{.code = Errc::timeout,
                 .what = where + fmt::format("waited {} for {}", format_duration(request.timeout),
                                             escaped(text))};
  }
  if (status == StoreStatus::full) return Error{.code = Errc::io, .what = where + "it is full"};
  if (status == StoreStatus::too_many) {
    return Error{.code = Errc::usage,
                 .what = where + "too many requests of this connection wait for keys already"};
  }
  return Error{.code = Errc::usage, .what = where + request.key + " does not hold a number"};
}

Result<StoreReply> TcpStore::receive(std::uint32_t id, TimePoint deadline) {
  char buffer[16384];
  while (true) {
    auto message = frames_.next();
    if (!message) return message.error();
    if (message->has_value()) {
      auto reply = decode_reply(**message);
      if (!reply || reply->id == id) return reply;
      continue;  // the late answer to an abandoned request
    }
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n == 0) return lost("connection closed");
    if (n > 0) {
      frames_.append(std::string_view(buffer, static_cast<std::size_t>(n)));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (auto ready = wait_ready(POLLIN, deadline); !ready) return ready.error();
    } else if (errno != EINTR) {
      return lost("connection reset");
    }
  }
}

// Removes the bytes sent from `bytes`.
Result<void> TcpStore::send(std::string_view& bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (auto ready = wait_ready(POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return lost("connection reset");
    }
  }
  return {};
}

Result<void> TcpStore::wait_ready(short events, TimePoint deadline) {
  while (true) {
    pollfd p{fd_.get(), events, 0};
    const int n = ::poll(&p, 1, poll_timeout_ms(steady_now(), deadline));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return errno_error("store: poll", errno);
    if (n == 0 && steady_now() >= deadline) {
      return Error{.code = Errc::timeout,
                   .what = "store at " + to_string(endpoint_) + " does not answer"};
    }
  }
}

Result<UniqueFd> connect_to(const SocketAddress& address, TimePoint deadline) {
  const auto now = steady_now();
  // Long enough for a near host to refuse, also in the last attempt, which gives the error its
  // words.
  const auto until = std::clamp(deadline, now + kLeastPatience, now + kMostPatience);
  auto fd = connect_socket(address.get(), address.size, numeric_host(address), until);
  const int on = 1;
  if (fd) ::setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

// One pass over all addresses: a proven connection, or each address's error.
Result<UniqueFd> attempt(const Endpoint& endpoint, const StoreOptions& options,
                         TimePoint deadline) {
  const auto addresses = resolve(endpoint.host, endpoint.port);
  if (!addresses) {
    return Error{.code = Errc::io,
                 .what = fmt::format("resolve '{}': {}", endpoint.host, addresses.error().what)};
  }
  std::string tried;
  for (const auto& address : *addresses) {
    auto fd = connect_to(address, deadline);
    if (!fd && fd.error().os_errno == ENETUNREACH && is_loopback(address.get())) {
      return Error{.code = Errc::unsupported, .what = fd.error().what + ": is 'lo' up?"};
    }
    if (fd) fd = secured(std::move(*fd), TlsChannel::Side::connector, options.secret);
    if (fd) {
      HandshakeIdentity self{
          .purpose = Purpose::store, .job_id = options.job_id, .who = options.who};
      auto proven = handshake_connect(fd->get(), options.secret, std::move(self),
                                      std::min(deadline, steady_now() + 2 * kHandshakeTimeout));
      if (proven) return fd;
      if (proven.error().code == Errc::auth) return proven.error();
      tried += (tried.empty() ? "" : "; ") + numeric_host(address) + ": " + proven.error().what;
    } else {
      tried += (tried.empty() ? "" : "; ") + fd.error().what;
    }
  }
  return Error{.code = Errc::io, .what = tried};
}

}  // namespace

Result<std::unique_ptr<Store>> open_tcp_store(const Endpoint& endpoint, const StoreOptions& options,
                                              TimePoint deadline) {
  const auto started = steady_now();
  std::minstd_rand random(static_cast<unsigned>(started.time_since_epoch().count()));
  Duration pause = std::chrono::milliseconds(5);
  while (true) {
    auto fd = attempt(endpoint, options, deadline);
    if (fd) return std::unique_ptr<Store>(std::make_unique<TcpStore>(std::move(*fd), endpoint));
    const auto where = "store at " + to_string(endpoint) + ": ";
    if (fd.error().code != Errc::io) {
      return Error{.code = fd.error().code, .what = where + fd.error().what};
    }
    const auto now = steady_now();
    if (now >= deadline) {
      return Error{.code = Errc::timeout,
                   .what = where + fmt::format("not reached in {}: {}",
                                               format_duration(now - started), fd.error().what)};
    }
    const auto until = std::min(deadline, now + jittered(pause, random()));
    ::poll(nullptr, 0, poll_timeout_ms(now, until));
    pause = std::min<Duration>(pause * 2, std::chrono::milliseconds(500));
  }
}

}  // namespace dlaunch
