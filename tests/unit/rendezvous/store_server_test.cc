// The server against strangers: garbage, silence, other jobs, taken ports.
#include "rendezvous/store_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <random>
#include <thread>

#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include "base/log.h"
#include "base/unique_fd.h"
#include "rendezvous/handshake.h"
#include "rendezvous/store.h"
#include "rendezvous/store_server_thread.h"
#include "rendezvous/wire.h"
#include "socket_hooks.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

TimePoint in_time() { return steady_now() + 20s; }

UniqueFd dial(std::uint16_t port, int receive_buffer = 0, const char* from = nullptr) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (receive_buffer > 0) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (from != nullptr) {
    ::inet_pton(AF_INET, from, &address.sin_addr);
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// A client past the handshake that the test speaks for, byte by byte.
UniqueFd dial_proven(std::uint16_t port, int receive_buffer = 0, const char* from = nullptr) {
  UniqueFd fd = dial(port, receive_buffer, from);
  REQUIRE(fd);
  const HandshakeIdentity self{.purpose = Purpose::store, .job_id = "job", .who = "raw"};
  REQUIRE(handshake_connect(fd.get(), Secret(), self, in_time()));
  return fd;
}

void say(const UniqueFd& fd, std::string_view bytes) {
  REQUIRE(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

void hear(const UniqueFd& fd, std::size_t size) {
  std::string bytes(size, '\0');
  REQUIRE(::recv(fd.get(), bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
}

std::string big_value() { return std::string(kMaxValueBytes, 'v'); }

std::string asks_for(const std::string& key, int times) {
  std::string asks;
  for (int i = 0; i < times; ++i) asks += encode(StoreRequest{.op = StoreOp::try_get, .key = key});
  return asks;
}

}  // namespace

TEST_CASE("10,000 random byte strings do not disturb a job") {
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "job", Secret());
  REQUIRE(server);
  const auto endpoint = (*server)->endpoint();
  auto good = open_store("tcp://" + to_string(endpoint), {"job", {}, "good"}, in_time());
  REQUIRE(good);
  std::mt19937 random(3);
  for (int i = 0; i < 10000; ++i) {
    const UniqueFd fd = dial(endpoint.port);
    REQUIRE(fd);
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 500 == 0) CHECK(*(*good)->add("n", 1, in_time()) == i / 500 + 1);
  }
  CHECK((*good)->set("after", "v", in_time()));
}

TEST_CASE("a crowd of silent sockets makes room for newcomers") {
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "job", Secret());
  REQUIRE(server);
  const auto endpoint = (*server)->endpoint();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(dial(endpoint.port));
  // 64 each 200 ms; at the handshake's 2 s each it would be 12 s.
  auto good = open_store("tcp://" + to_string(endpoint), {"job", {}, "good"}, steady_now() + 11s);
  REQUIRE(good);
  CHECK((*good)->set("k", "v", in_time()));
}

TEST_CASE("a client of another job is refused by name, with the right job or secret") {
  set_log_sink([](LogLevel, std::string_view) {});
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "job-a", Secret("0123456789abcdef"));
  REQUIRE(server);
  const auto url = "tcp://" + to_string((*server)->endpoint());
  const auto other = open_store(url, {"job-b", Secret("0123456789abcdef"), "rank 3"}, in_time());
  REQUIRE_FALSE(other);
  CHECK(other.error().code == Errc::auth);
  CHECK(other.error().what.find("this is job 'job-a'; rank 3 is of job 'job-b'") !=
        std::string::npos);
  const auto wrong = open_store(url, {"job-a", Secret("another secret!!"), "rank 3"}, in_time());
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == Errc::auth);
  CHECK(open_store(url, {"job-a", Secret("0123456789abcdef"), "rank 3"}, in_time()));
  set_log_sink({});
}

TEST_CASE("a port that is taken is named") {
  auto first = StoreServerThread::start({"127.0.0.1", 0}, "a", Secret());
  REQUIRE(first);
  const auto second = StoreServerThread::start((*first)->endpoint(), "b", Secret());
  REQUIRE_FALSE(second);
  CHECK(second.error().os_errno == EADDRINUSE);
  CHECK(second.error().what.find(to_string((*first)->endpoint())) != std::string::npos);
}

TEST_CASE("the error without a server says what was tried; the end of a server is another error") {
  std::uint16_t port = 0;
  {
    auto server = StoreServerThread::start({"127.0.0.1", 0}, "a", Secret());
    REQUIRE(server);
    port = (*server)->endpoint().port;
    auto store = open_store("tcp://127.0.0.1:" + std::to_string(port), {"a", {}, "x"}, in_time());
    REQUIRE(store);
    server->reset();
    const auto get = (*store)->get("k", in_time());
    REQUIRE_FALSE(get);
    CHECK(get.error().code == Errc::io);
  }
  const auto none =
      open_store("tcp://127.0.0.1:" + std::to_string(port), {"a", {}, "x"}, steady_now() + 1s);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == Errc::timeout);
  CHECK(none.error().what.find("127.0.0.1: Connection refused") != std::string::npos);
}

TEST_CASE("two hundred clients at once are served") {
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "job", Secret());
  REQUIRE(server);
  const auto url = "tcp://" + to_string((*server)->endpoint());
  std::vector<std::unique_ptr<Store>> clients;
  for (int i = 0; i < 200; ++i) {
    auto store = open_store(url, {"job", {}, "c"}, in_time());
    REQUIRE(store);
    clients.push_back(std::move(*store));
  }
  for (auto& client : clients) CHECK(client->add("n", 1, in_time()));
  CHECK(*clients[0]->add("n", 0, in_time()) == 200);
}

TEST_CASE("a client that asks and does not read is cut off, and its memory is freed") {
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "job", Secret());
  REQUIRE(server);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // takes the place of ours below
  const auto before = open_descriptors();
  fd = dial_proven((*server)->endpoint().port, 65536);
  say(fd, encode(StoreRequest{.op = StoreOp::set, .key = "k", .value = big_value()}));
  // The reply to set holds the value, too, and the first of the next is sent alone. Once they are
  // read, the server is at the other 13, which are more than the kernel takes.
  say(fd, asks_for("k", 14));
  hear(fd, 2 * encode(StoreReply{.value = big_value()}).size() + 1);
  say(fd, asks_for("k", 200));
  // The end of the server's socket is the end of what it kept for it.
  const auto deadline = in_time();
  while (open_descriptors() > before && steady_now() < deadline) ::poll(nullptr, 0, 1);
  CHECK(open_descriptors() == before);
}

TEST_CASE("no socket of the store is ever open to programs that another thread starts") {
  const int before = inheritable_sockets;
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "job", Secret());
  REQUIRE(server);
  const auto url = "tcp://" + to_string((*server)->endpoint());
  auto store = open_store(url, {"job", {}, "c"}, in_time());
  REQUIRE(store);
  CHECK((*store)->set("k", "v", in_time()));
  CHECK(inheritable_sockets == before);
}

TEST_CASE("refusals and malformed frames are counted, and logged once for each address") {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  asio::io_context loop{1};
  StoreServerOptions options;
  options.listen = {"127.0.0.1", 0};
  options.job_id = "job";
  auto server = StoreServer::open(loop, options);
  REQUIRE(server);
  const auto endpoint = (*server)->endpoint();
  std::thread serving([&] { loop.run(); });
  for (int i = 0; i < 5; ++i) {
    const std::string who = "stranger " + std::to_string(i);
    CHECK_FALSE(open_store("tcp://" + to_string(endpoint), {"another", {}, who}, in_time()));
  }
  for (int i = 0; i < 5; ++i) {
    const UniqueFd fd = dial_proven(endpoint.port, 0, i % 2 == 0 ? "127.0.0.1" : "127.0.0.2");
    say(fd, "\xff\xff\xff\x7f");
    char byte;
    CHECK(::recv(fd.get(), &byte, 1, 0) <= 0);  // the server hangs up after it has logged
  }
  loop.stop();
  serving.join();
  set_log_sink({});
  CHECK((*server)->dropped() == 10);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("from 127.0.0.1: refused a connection") != std::string::npos);
  CHECK(lines[1].find("from 127.0.0.2: closed the connection of raw: ") != std::string::npos);
}
