// The server against strangers: garbage, silence, other jobs, taken ports.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include <doctest/doctest.h>

#include "base/log.h"
#include "base/unique_fd.h"
#include "rendezvous/store.h"
#include "rendezvous/store_server_thread.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

TimePoint soon() { return steady_now() + 20s; }

UniqueFd dial(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

}  // namespace

TEST_CASE("10,000 random byte strings do not disturb a job") {
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "job", Secret());
  REQUIRE(server);
  const auto endpoint = (*server)->endpoint();
  auto good = open_store("tcp://" + to_string(endpoint), {"job", {}, "good"}, soon());
  REQUIRE(good);
  std::mt19937 random(3);
  for (int i = 0; i < 10000; ++i) {
    const UniqueFd fd = dial(endpoint.port);
    REQUIRE(fd);
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 500 == 0) CHECK(*(*good)->add("n", 1, soon()) == i / 500 + 1);
  }
  CHECK((*good)->set("after", "v", soon()));
}

TEST_CASE("silent sockets are dropped and newcomers still get in") {
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "job", Secret());
  REQUIRE(server);
  const auto endpoint = (*server)->endpoint();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(dial(endpoint.port));
  auto good = open_store("tcp://" + to_string(endpoint), {"job", {}, "good"}, soon());
  REQUIRE(good);
  CHECK((*good)->set("k", "v", soon()));
}

TEST_CASE("a client of another job is refused by name, with the right job or secret") {
  set_log_sink([](LogLevel, std::string_view) {});
  auto server = StoreServerThread::start({"127.0.0.1", 0}, "job-a", Secret("0123456789abcdef"));
  REQUIRE(server);
  const auto url = "tcp://" + to_string((*server)->endpoint());
  const auto other = open_store(url, {"job-b", Secret("0123456789abcdef"), "rank 3"}, soon());
  REQUIRE_FALSE(other);
  CHECK(other.error().code == Errc::auth);
  CHECK(other.error().what.find("this is job 'job-a'; rank 3 is of job 'job-b'") !=
        std::string::npos);
  const auto wrong = open_store(url, {"job-a", Secret("another secret!!"), "rank 3"}, soon());
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == Errc::auth);
  CHECK(open_store(url, {"job-a", Secret("0123456789abcdef"), "rank 3"}, soon()));
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

TEST_CASE("nobody there: the error tells what was tried; a server that ends is told as such") {
  std::uint16_t port = 0;
  {
    auto server = StoreServerThread::start({"127.0.0.1", 0}, "a", Secret());
    REQUIRE(server);
    port = (*server)->endpoint().port;
    auto store = open_store("tcp://127.0.0.1:" + std::to_string(port), {"a", {}, "x"}, soon());
    REQUIRE(store);
    server->reset();
    const auto get = (*store)->get("k", soon());
    REQUIRE_FALSE(get);
    CHECK(get.error().code == Errc::io);
  }
  const auto none =
      open_store("tcp://127.0.0.1:" + std::to_string(port), {"a", {}, "x"}, steady_now() + 50ms);
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
    auto store = open_store(url, {"job", {}, "c"}, soon());
    REQUIRE(store);
    clients.push_back(std::move(*store));
  }
  for (auto& client : clients) CHECK(client->add("n", 1, soon()));
  CHECK(*clients[0]->add("n", 0, soon()) == 200);
}
