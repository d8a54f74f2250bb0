#include "ring/links/connections.h"

#include <algorithm>
#include <condition_variable>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

#include "base/log.h"
#include "base/socket.h"
#include "socket_ends.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

constexpr const char* kHere = "127.0.0.1";

HandshakeIdentity of_rank(int from, int to, const std::string& job = "job",
                          std::uint64_t round = 1) {
  return {Purpose::ring_data, job, round, from, to, "rank " + std::to_string(from)};
}

// A communicator that keeps what it gets.
class KeptConnections : public Connections::Client {
 public:
  void on_connection(UniqueFd fd, const HandshakeIdentity& from, bool is_unix) override {
    const std::lock_guard lock(mutex_);
    come.push_back({std::move(fd), from, is_unix});
    changed_.notify_all();
  }
  void on_made(std::uint64_t order, Result<UniqueFd> fd) override {
    const std::lock_guard lock(mutex_);
    made.emplace_back(order, std::move(fd));
    changed_.notify_all();
  }
  bool tries_on(std::uint64_t, const Error&) override {
    const std::lock_guard lock(mutex_);
    ++tries;
    changed_.notify_all();
    return tries < most_tries;
  }
  void on_posted(std::uint64_t what) override {
    const std::lock_guard lock(mutex_);
    posted.emplace_back(what, come.size());
    changed_.notify_all();
  }
  void on_failure(const Error& error) override {
    const std::lock_guard lock(mutex_);
    failure = error;
    changed_.notify_all();
  }

  template <class Ready>
  bool await(Ready ready) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, ready);
  }

  struct Come {
    UniqueFd fd;
    HandshakeIdentity from;
    bool is_unix = false;
  };
  std::vector<Come> come;
  std::vector<std::pair<std::uint64_t, Result<UniqueFd>>> made;
  std::vector<std::pair<std::uint64_t, std::size_t>> posted;  // with what had come by then
  int tries = 0, most_tries = 1 << 30;
  std::optional<Error> failure;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

std::shared_ptr<Connections> connections_here(bool with_unix = false, const Secret& secret = {}) {
  auto made = Connections::of_process(secret, kHere, with_unix, {});
  REQUIRE(made);
  return *made;
}

Connections::Target target_of(const Connections& connections, bool by_unix) {
  return {"rank 0", "", by_unix ? connections.unix_name() : "", connections.tcp_endpoint()};
}

}  // namespace

TEST_CASE("connections: those with the same secret and address share one port") {
  const auto one = connections_here();
  CHECK(connections_here() == one);
  CHECK(connections_here(true) != one);
  CHECK(connections_here(false, Secret("another secret of the job")) != one);
  const Endpoint endpoint = one->tcp_endpoint();
  CHECK(connect_tcp(endpoint, steady_now() + 30s));
}

TEST_CASE("connections: the port is closed once no communicator needs it") {
  auto one = connections_here();
  const Endpoint endpoint = one->tcp_endpoint();
  one.reset();
  CHECK_FALSE(connect_tcp(endpoint, steady_now() + 10s));
}

TEST_CASE("connections: each rank, job and round of a process gets its own") {
  const auto connections = connections_here(true);
  KeptConnections first, second, group, connector;
  const auto id = connections->add(of_rank(-1, 0), first);
  connections->add(of_rank(-1, 1), second);
  connections->add(of_rank(-1, 0, "job#group"), group);
  const auto orders = connections->add(of_rank(-1, 7), connector);
  for (const bool by_unix : {false, true}) {
    connections->connect(orders, 10, target_of(*connections, by_unix), of_rank(7, 0));
    connections->connect(orders, 11, target_of(*connections, by_unix), of_rank(7, 1));
    connections->connect(orders, 12, target_of(*connections, by_unix), of_rank(7, 0, "job#group"));
  }
  CHECK(connector.await([&] { return connector.made.size() == 6; }));
  for (KeptConnections* const client : {&first, &second, &group}) {
    CHECK(client->await([&] { return client->come.size() == 2; }));
    for (const auto& come : client->come) CHECK(come.from.from_rank == 7);
  }
  for (const auto& [order, fd] : connector.made) REQUIRE(fd);
  CHECK(std::count_if(first.come.begin(), first.come.end(),
                      [](const auto& come) { return come.is_unix; }) == 1);
  const auto joined = std::find_if(connector.made.begin(), connector.made.end(),
                                   [](const auto& made) { return made.first == 11; });
  const auto other_end = std::find_if(second.come.begin(), second.come.end(), [&](auto& come) {
    return come.is_unix == is_unix_socket(joined->second->get());
  });
  REQUIRE(other_end != second.come.end());
  CHECK(speak(*joined->second, other_end->fd));
  for (std::uint64_t other = id; other <= orders; ++other) connections->remove(other);
}

TEST_CASE("connections: an order waits for a rank that comes later, and ends with one that left") {
  const auto connections = connections_here();
  KeptConnections early, late;
  const auto orders = connections->add(of_rank(-1, 1), early);
  connections->connect(orders, 1, target_of(*connections, false), of_rank(1, 0));
  CHECK(early.await([&] { return early.tries >= 2; }));
  CHECK(early.made.empty());
  const auto id = connections->add(of_rank(-1, 0), late);
  CHECK(early.await([&] { return early.made.size() == 1; }));
  CHECK(early.made[0].second);
  CHECK(late.await([&] { return late.come.size() == 1; }));
  connections->remove(id);
  early.most_tries = early.tries + 3;
  connections->connect(orders, 2, target_of(*connections, false), of_rank(1, 0));
  CHECK(early.await([&] { return early.made.size() == 2; }));
  CHECK_FALSE(early.made[1].second);
  connections->remove(orders);
}

TEST_CASE(
    "connections: a crowd of idle strangers delays a member a little, and does not keep it "
    "out") {
  const auto connections = connections_here();
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 300; ++i) {
    auto stranger = connect_tcp(connections->tcp_endpoint(), steady_now() + 30s);
    REQUIRE(stranger);
    crowd.push_back(std::move(*stranger));
  }
  KeptConnections client;
  const auto id = connections->add(of_rank(-1, 0), client);
  const auto begin = steady_now();
  const auto member = connect_tcp(connections->tcp_endpoint(), steady_now() + 30s);
  REQUIRE(member);
  CHECK(handshake_connect(member->get(), Secret(), of_rank(1, 0), steady_now() + 30s));
  CHECK(client.await([&] { return client.come.size() == 1; }));
  CHECK(steady_now() - begin < 6s);  // 200 ms for each 64; until each has had its time: 8 s
  connections->remove(id);
}

TEST_CASE("connections: refusals are logged once for each address") {
  std::vector<std::string> lines;
  std::mutex mutex;
  set_log_sink([&](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.emplace_back(line);
  });
  auto connections = connections_here(true);
  KeptConnections client;
  const auto id = connections->add(of_rank(-1, 0), client);
  for (int i = 0; i < 10; ++i) {
    const auto stranger = i % 2 == 0 ? connect_tcp(connections->tcp_endpoint(), steady_now() + 10s)
                                     : connect_unix(connections->unix_name());
    if (!stranger) continue;
    CHECK_FALSE(
        handshake_connect(stranger->get(), Secret(), of_rank(1, 0, "other"), steady_now() + 10s));
  }
  connections->remove(id);
  connections.reset();
  set_log_sink({});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("refused a connection from 127.0.0.1: this is job") != std::string::npos);
  CHECK(lines[1].find("refused a connection from this host: this is job") != std::string::npos);
}

TEST_CASE("connections: a rank that is not here yet gets no refusal, which would be final") {
  const auto connections = connections_here();
  KeptConnections client;
  const auto id = connections->add(of_rank(-1, 0), client);
  const auto fd = connect_tcp(connections->tcp_endpoint(), steady_now() + 30s);
  REQUIRE(fd);
  const auto got = handshake_connect(fd->get(), Secret(), of_rank(1, 5), steady_now() + 10s);
  REQUIRE_FALSE(got);
  CHECK(got.error().code == Errc::io);
  connections->remove(id);
}

TEST_CASE("connections: what is posted comes after the connections that were welcomed before") {
  const auto connections = connections_here();
  KeptConnections client;
  const auto id = connections->add(of_rank(-1, 0), client);
  for (std::size_t i = 1; i <= 100; ++i) {
    const auto fd = connect_tcp(connections->tcp_endpoint(), steady_now() + 30s);
    REQUIRE(fd);
    REQUIRE(handshake_connect(fd->get(), Secret(), of_rank(1, 0), steady_now() + 30s));
    connections->post(id, i);
  }
  REQUIRE(client.await([&] { return client.posted.size() == 100; }));
  for (const auto& [what, come] : client.posted) CHECK(come >= what);
  connections->remove(id);
}
