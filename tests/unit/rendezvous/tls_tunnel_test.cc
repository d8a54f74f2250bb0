// Tunnels over TCP on loopback, with a relay between them that records the bytes.
#include "rendezvous/tls_tunnel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "base/clock.h"
#include "base/socket.h"
#include "rendezvous/handshake.h"
#include "tests/unit/safe_fork.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

using Side = TlsChannel::Side;

Secret secret_of(const std::string& bytes) {
  Secret secret(bytes + "-of-sixteen-and-more");
  secret.set_encrypts(true);
  return secret;
}

// Two ends of a TCP connection.
struct Tcp {
  UniqueFd a, b;
  Tcp() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(::bind(listener.get(), any, size) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), any, &size) == 0);
    a.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(a.get(), any, size) == 0);
    b.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(b);
  }
};

struct Pair {
  UniqueFd a, b;
  int tcp_a;
  explicit Pair(Tcp tcp = Tcp(), const Secret& of_a = secret_of("same"),
                const Secret& of_b = secret_of("same"))
      : tcp_a(tcp.a.get()) {
    auto left = tls_tunnel(std::move(tcp.a), Side::connector, of_a);
    auto right = tls_tunnel(std::move(tcp.b), Side::acceptor, of_b);
    REQUIRE(left);
    REQUIRE(right);
    a = std::move(*left);
    b = std::move(*right);
  }
};

bool wait_for(int fd, short events, int ms = 30'000) {
  pollfd p{fd, events, 0};
  return ::poll(&p, 1, ms) == 1;
}

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN) return;
    if (n < 0 && !wait_for(fd, POLLOUT)) return;
  }
}

// As much, or up to the end.
std::string receive(int fd, std::size_t bytes) {
  std::string all(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes && wait_for(fd, POLLIN)) {
    const ssize_t n = ::recv(fd, &all[have], bytes - have, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) break;
    if (n > 0) have += static_cast<std::size_t>(n);
  }
  all.resize(have);
  return all;
}

std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

bool has_ended(int fd) {
  char byte;
  return wait_for(fd, POLLIN) && ::recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

}  // namespace

TEST_CASE("tls: bytes arrive on the other side, both ways at once") {
  const Pair pair;
  const std::string there = pattern(5'000'000), back = pattern(3'000'001);
  std::thread one([&] { send_all(pair.a.get(), there); });
  std::thread two([&] { send_all(pair.b.get(), back); });
  std::string got_back;
  std::thread three([&] { got_back = receive(pair.a.get(), back.size()); });
  CHECK(receive(pair.b.get(), there.size()) == there);
  for (auto* thread : {&one, &two, &three}) thread->join();
  CHECK(got_back == back);
}

TEST_CASE("tls: bytes sent before a close arrive, and the close ends the other side") {
  Pair pair;
  send_all(pair.b.get(), "!");
  CHECK(receive(pair.a.get(), 1) == "!");
  const std::string last = pattern(100'000);
  send_all(pair.a.get(), last);
  pair.a.reset();
  CHECK(receive(pair.b.get(), last.size() + 1) == last);
  CHECK(has_ended(pair.b.get()));
}

TEST_CASE("tls: a close with unread bytes also ends the other side") {
  Pair pair;
  send_all(pair.b.get(), "nobody reads this");
  REQUIRE(wait_for(pair.a.get(), POLLIN));
  pair.a.reset();
  CHECK(has_ended(pair.b.get()));
}

TEST_CASE("tls: one direction may end before the other") {
  const Pair pair;
  send_all(pair.a.get(), "that is all");
  REQUIRE(::shutdown(pair.a.get(), SHUT_WR) == 0);
  CHECK(receive(pair.b.get(), 100) == "that is all");
  send_all(pair.b.get(), "not here");
  CHECK(receive(pair.a.get(), 8) == "not here");
}

TEST_CASE("tls: a side that does not read delays the other, and loses nothing") {
  const Pair pair;
  const std::string much = pattern(20'000'000);
  std::size_t sent = 0;
  while (true) {
    const ssize_t n =
        ::send(pair.a.get(), &much[sent], much.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) sent += static_cast<std::size_t>(n);
    pollfd p{pair.a.get(), POLLOUT, 0};
    if (n < 0 && ::poll(&p, 1, 300) == 0) break;
  }
  CHECK(sent < much.size());
  std::thread rest([&] { send_all(pair.a.get(), std::string_view(much).substr(sent)); });
  CHECK(receive(pair.b.get(), much.size()) == much);
  rest.join();
}

TEST_CASE("tls: a close does not wait for ever for a side that does not read") {
  Tcp tcp;
  for (const UniqueFd* end : {&tcp.a, &tcp.b}) {  // or the kernel may take all of it
    const int few = 4096;
    REQUIRE(::setsockopt(end->get(), SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0);
    REQUIRE(::setsockopt(end->get(), SOL_SOCKET, SO_RCVBUF, &few, sizeof few) == 0);
  }
  Pair pair(std::move(tcp));
  const UniqueFd outer(::fcntl(pair.tcp_a, F_DUPFD_CLOEXEC, 0));
  const auto limit = [&] {
    int ms = 0;
    socklen_t size = sizeof ms;
    REQUIRE(::getsockopt(outer.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &size) == 0);
    return ms;
  };
  const std::string much(1 << 20, 'x');
  ssize_t n = 1;
  while (n > 0 || wait_for(pair.a.get(), POLLOUT, 2000)) {
    n = ::send(pair.a.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  CHECK(limit() == 0);
  pair.a.reset();
  const auto until = steady_now() + 30s;
  while (limit() == 0 && steady_now() < until) std::this_thread::yield();
  CHECK(limit() == 60'000);
}

TEST_CASE("tls: no byte can be read on the way, and changed bytes do not arrive") {
  Tcp left, right;
  const UniqueFd relay_in = std::move(left.b), relay_out = std::move(right.a);
  Tcp ends;
  ends.a = std::move(left.a);
  ends.b = std::move(right.b);
  const Pair pair(std::move(ends));
  std::string seen;
  bool spoil = false;
  const auto pass = [&](int from, int to) {
    char buffer[4096];
    const ssize_t n = ::recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0) return n != 0;
    if (spoil) buffer[n - 1] ^= 1;
    seen.append(buffer, static_cast<std::size_t>(n));
    send_all(to, {buffer, static_cast<std::size_t>(n)});
    return true;
  };
  const std::string words = "the gradients of nobody else's business";
  send_all(pair.a.get(), words);
  std::string got;
  const auto carry_until = [&](auto done) {
    const TimePoint until = steady_now() + 30s;
    while (!done() && steady_now() < until) {
      pollfd both[] = {{relay_in.get(), POLLIN, 0}, {relay_out.get(), POLLIN, 0}};
      ::poll(both, 2, 10);
      if (!pass(relay_in.get(), relay_out.get()) || !pass(relay_out.get(), relay_in.get())) break;
      char buffer[100];
      const ssize_t n = ::recv(pair.b.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) got.append(buffer, static_cast<std::size_t>(n));
      if (n == 0) got = "ended";
    }
  };
  carry_until([&] { return got == words; });
  CHECK(got == words);
  CHECK(seen.size() > words.size());
  CHECK(seen.find("gradients") == std::string::npos);
  spoil = true;
  got.clear();
  send_all(pair.a.get(), words);
  carry_until([&] { return !got.empty(); });
  CHECK(got == "ended");
}

TEST_CASE("tls: the handshake reports another secret, and a side without encryption") {
  const auto shake = [](int fd, bool connects) {
    const TimePoint until = steady_now() + 30s;
    HandshakeIdentity self{.job_id = "job"};
    // A secret of its own: the handshake's does not come to count.
    const Secret secret("0123456789abcdef");
    auto proven = connects ? handshake_connect(fd, secret, self, until)
                           : handshake_accept(fd, secret, self, until);
    REQUIRE_FALSE(proven);
    return proven.error();
  };
  SUBCASE("another secret") {
    const Pair pair(Tcp(), secret_of("one"), secret_of("two"));
    std::thread accepts([&] { CHECK(shake(pair.b.get(), false).code == Errc::auth); });
    const Error error = shake(pair.a.get(), true);
    accepts.join();
    CHECK(error.code == Errc::auth);
    CHECK(error.what.find("do both sides have this job's secret") != std::string::npos);
  }
  SUBCASE("the acceptor does not encrypt") {
    Tcp tcp;
    auto a = tls_tunnel(std::move(tcp.a), Side::connector, secret_of("same"));
    REQUIRE(a);
    const Error error = shake(tcp.b.get(), false);
    CHECK(error.code == Errc::auth);
    CHECK(error.what.find("do both sides have --tls") != std::string::npos);
  }
  SUBCASE("the connector does not encrypt") {
    Tcp tcp;
    auto b = tls_tunnel(std::move(tcp.b), Side::acceptor, secret_of("same"));
    REQUIRE(b);
    const Error error = shake(tcp.a.get(), true);
    CHECK(error.code == Errc::auth);
    CHECK(error.what.find("do both sides have --tls") != std::string::npos);
  }
}

TEST_CASE("tls: facts of the connection are those of the TCP socket behind it") {
  Pair pair;
  CHECK_FALSE(is_unix_socket(pair.a.get()));
  CHECK(Carrier(pair.a.get()).fd() == pair.tcp_a);
  int plain[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, plain) == 0);
  CHECK(is_unix_socket(plain[0]));
  for (const int fd : plain) ::close(fd);
}

// A forked child of a process with threads can have none of its own there.
#ifdef __SANITIZE_THREAD__
constexpr bool kNoThreadsInChild = true;
#else
constexpr bool kNoThreadsInChild = false;
#endif

TEST_CASE("tls: a process that leaves waits until its last bytes are sent" *
          doctest::skip(kNoThreadsInChild)) {
  Tcp tcp;
  const pid_t child = safe_fork();
  if (child == 0) {
    tcp.b.reset();
    auto a = tls_tunnel(std::move(tcp.a), Side::connector, secret_of("same"));
    // Once the other side has spoken, the channel is there.
    if (!a || receive(a->get(), 1) != "!") ::_exit(1);
    // So little that it fits into the socket: there is a limit to how long it waits for the reader.
    send_all(a->get(), pattern(10'000));
    finish_tunnels();
    ::_exit(0);
  }
  tcp.a.reset();
  auto b = tls_tunnel(std::move(tcp.b), Side::acceptor, secret_of("same"));
  REQUIRE(b);
  send_all(b->get(), "!");
  CHECK(receive(b->get(), 10'001) == pattern(10'000));
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("tls: a forked child does not keep a connection of its parent open") {
  Pair pair;
  int hold[2];
  REQUIRE(::pipe(hold) == 0);
  send_all(pair.a.get(), "before");
  CHECK(receive(pair.b.get(), 6) == "before");
  const pid_t child = safe_fork();
  if (child == 0) {
    ::close(hold[1]);
    pair.a.reset();
    pair.b.reset();
    char byte;
    [[maybe_unused]] const auto n = ::read(hold[0], &byte, 1);
    ::_exit(0);
  }
  pair.a.reset();
  CHECK(has_ended(pair.b.get()));
  ::close(hold[1]);
  ::waitpid(child, nullptr, 0);
  ::close(hold[0]);
}
