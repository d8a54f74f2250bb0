#include "launcher/wire/output_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <doctest/doctest.h>

#include "base/address.h"
#include "base/socket.h"
#include "rendezvous/handshake.h"
#include "rendezvous/store_server.h"

namespace dlaunch {
namespace {

std::string read_to_end(int fd) {
  std::string text;
  char bytes[4096];
  for (ssize_t n = 0;; text.append(bytes, static_cast<std::size_t>(n))) {
    n = ::read(fd, bytes, sizeof bytes);
    if (n < 0 && errno == EAGAIN) {
      ::usleep(1000);
      n = 0;
      continue;
    }
    if (n <= 0) return text;
  }
}

// A store that notes the output connections.
class OutputTaker {
 public:
  explicit OutputTaker(const Secret& secret) {
    NodeHandlers nodes{.opened = [](NodeHandlers::Link, const std::string&) {},
                       .message = [](NodeHandlers::Link, std::string_view) {},
                       .closed = [](NodeHandlers::Link) {},
                       .output =
                           [this](UniqueFd fd, std::int32_t login, std::int32_t stream) {
                             const std::lock_guard lock(mutex_);
                             taken_.emplace_back(std::move(fd), login, stream);
                             come_.notify_all();
                           }};
    auto server = StoreServer::open(
        loop_,
        {.listen = {"127.0.0.1", 0}, .job_id = "job", .secret = secret, .nodes = std::move(nodes)});
    REQUIRE(server);
    server_ = std::move(*server);
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~OutputTaker() {
    loop_.stop();
    thread_.join();
  }
  Endpoint endpoint() const { return server_->endpoint(); }
  using Taken = std::vector<std::tuple<UniqueFd, std::int32_t, std::int32_t>>;
  Taken wait_for(std::size_t number) {
    const auto until = steady_now() + std::chrono::seconds(20);
    std::unique_lock lock(mutex_);
    while (taken_.size() < number && come_.wait_until(lock, until) != std::cv_status::timeout) {
    }
    return std::exchange(taken_, {});
  }

 private:
  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> keep_{loop_.get_executor()};
  std::unique_ptr<StoreServer> server_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable come_;
  Taken taken_;
};

TEST_CASE("output link: each stream arrives whole under its login, and its end, too") {
  const Secret secret(std::string(32, 's'));
  OutputTaker leader(secret);
  auto link = open_output_link(leader.endpoint(), secret, "job", 7, "a test");
  REQUIRE(link);
  const auto taken = leader.wait_for(2);
  REQUIRE(taken.size() == 2);
  CHECK((std::get<1>(taken[0]) == 7 && std::get<2>(taken[0]) == kOutputStream));
  CHECK((std::get<1>(taken[1]) == 7 && std::get<2>(taken[1]) == kErrorStream));
  CHECK(::write(link->out.get(), "to the user", 11) == 11);
  CHECK(::write(link->err.get(), "an error", 8) == 8);
  // The leader ends the dlaunch there, which still sends the rest.
  ::shutdown(std::get<0>(taken[0]).get(), SHUT_WR);
  CHECK(read_to_end(link->out.get()).empty());
  CHECK(::write(link->out.get(), ", and the rest", 14) == 14);
  link = OutputLink();
  CHECK(read_to_end(std::get<0>(taken[0]).get()) == "to the user, and the rest");
  CHECK(read_to_end(std::get<0>(taken[1]).get()) == "an error");
}

// Speaks the handshake byte by byte: `early` goes out with its proof.
class RawClient {
 public:
  RawClient(const Endpoint& leader, const Secret& secret, const std::string& early = "") {
    const auto address = resolve("127.0.0.1", leader.port);
    REQUIRE(address);
    const auto until = deadline_after(steady_now(), std::chrono::seconds(20));
    auto made = connect_socket(address->front().get(), address->front().size, "here", until);
    REQUIRE(made);
    fd_ = std::move(*made);
    const HandshakeIdentity self{.purpose = Purpose::output, .job_id = "job", .who = "raw"};
    auto handshake = Handshake::connector(secret, self, std::string(kNonceBytes, 'n'));
    say(handshake.take_output());
    while (!handshake.done() && steady_now() < until) {
      char byte = 0;  // does not wait: the store must not have the time to look away
      if (::recv(fd_.get(), &byte, 1, MSG_DONTWAIT) != 1) continue;
      REQUIRE(handshake.feed({&byte, 1}));
      if (const std::string proof = handshake.take_output(); !proof.empty()) say(proof + early);
    }
  }
  void say(const std::string& text) const {
    REQUIRE(::send(fd_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

TEST_CASE("output link: nothing is lost that a client writes directly after the welcome") {
  const Secret secret(std::string(32, 's'));
  OutputTaker leader(secret);
  for (int round = 0; round < 2000; ++round) {
    const RawClient client(leader.endpoint(), secret);
    client.say("text");
    ::shutdown(client.fd(), SHUT_WR);
    const auto taken = leader.wait_for(1);
    REQUIRE(taken.size() == 1);
    CHECK(read_to_end(std::get<0>(taken[0]).get()) == "text");
  }
}

TEST_CASE("output link: a client that writes before the welcome is turned away") {
  const Secret secret(std::string(32, 's'));
  OutputTaker leader(secret);
  const RawClient client(leader.endpoint(), secret, "x");
  pollfd ended{client.fd(), POLLIN, 0};
  REQUIRE(::poll(&ended, 1, 30'000) == 1);
  char byte = 0;
  CHECK(::read(client.fd(), &byte, 1) == 0);
}

TEST_CASE("output link: only a process of the same job gets one") {
  const Secret secret(std::string(32, 's'));
  OutputTaker leader(secret);
  const auto other = open_output_link(leader.endpoint(), Secret("other"), "job", 7, "a test");
  REQUIRE_FALSE(other);
  CHECK(other.error().code == Errc::auth);
  CHECK_FALSE(open_output_link(leader.endpoint(), secret, "another job", 7, "a test"));
}

}  // namespace
}  // namespace dlaunch
