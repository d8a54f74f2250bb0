// The client against servers that stall, answer late or send malformed replies.
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include <doctest/doctest.h>

#include "base/unique_fd.h"
#include "rendezvous/handshake.h"
#include "rendezvous/store.h"
#include "rendezvous/wire.h"
#include "socket_hooks.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

TimePoint before_long() { return steady_now() + 20s; }

// A server's end of one connection, past the handshake, in the hands of the test.
struct Puppet {
  std::unique_ptr<Store> store;
  UniqueFd fd;

  Puppet() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int small = 4096;  // so that a sender blocks early
    ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener.get(), 8) == 0);
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    std::thread acceptor([&] {
      fd.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      CHECK(handshake_accept(fd.get(), Secret(), {.purpose = Purpose::store, .job_id = "job"},
                             before_long()));
    });
    const auto url = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    auto opened = open_store(url, {"job", {}, "a test"}, before_long());
    acceptor.join();
    REQUIRE(opened);
    store = std::move(*opened);
  }

  void say(std::string_view bytes) const {
    REQUIRE(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
};

// Everything the client has sent is cut into frames, up to the end of its stream.
std::vector<StoreRequest> heard(const Puppet& puppet) {
  std::vector<StoreRequest> requests;
  FrameBuffer frames;
  std::string buffer(1 << 16, '\0');
  while (true) {
    const ssize_t n = ::recv(puppet.fd.get(), buffer.data(), buffer.size(), 0);
    if (n <= 0) return requests;
    frames.append(std::string_view(buffer.data(), static_cast<std::size_t>(n)));
    while (true) {
      auto message = frames.next();
      REQUIRE(message);
      if (!message->has_value()) break;
      auto request = decode_request(**message);
      REQUIRE(request);
      requests.push_back(std::move(*request));
    }
  }
}

}  // namespace

TEST_CASE("a request that could not be sent completely is the last one") {
  Puppet puppet;
  const std::string big(kMaxValueBytes, 'v');
  std::string why;
  for (int i = 0; i < 64 && why.empty(); ++i) {
    const auto set = puppet.store->set("k", big, steady_now() + 20ms);
    REQUIRE_FALSE(set);
    if (set.error().code == Errc::timeout) continue;
    CHECK(set.error().code == Errc::io);
    why = set.error().what;
  }
  CHECK(why.find("unusable since an earlier call failed") != std::string::npos);
  CHECK(puppet.store->try_get("k", before_long()).error().what == why);
  puppet.store.reset();
  for (const auto& request : heard(puppet)) CHECK(request.value == big);
}

TEST_CASE("a late reply in pieces is skipped") {
  Puppet puppet;
  const auto late = encode(StoreReply{.id = 1, .value = "late"});
  puppet.say(late.substr(0, 7));
  CHECK(puppet.store->try_get("a", steady_now() + 20ms).error().code == Errc::timeout);
  puppet.say(late.substr(7) + encode(StoreReply{.id = 2, .value = "in time"}));
  CHECK(**puppet.store->try_get("b", before_long()) == "in time");
}

TEST_CASE("after a malformed reply no further reply is read") {
  Puppet puppet;
  const auto sound = encode(StoreReply{.id = 2, .value = "v"});
  puppet.say(std::string("\x01\0\0\0?", 5) + sound);
  CHECK(puppet.store->try_get("a", before_long()).error().code == Errc::protocol);
  const auto next = puppet.store->try_get("b", before_long());
  REQUIRE_FALSE(next);
  CHECK(next.error().code == Errc::io);
}

TEST_CASE("a socket that is connected to itself is not a server") {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  {
    const UniqueFd free_port(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(free_port.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(free_port.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  }
  const int port = ntohs(address.sin_port);
  bind_next_socket_to = port;
  // The deadline has passed already: there is this one attempt.
  const auto store =
      open_store("tcp://127.0.0.1:" + std::to_string(port), {"job", {}, "x"}, steady_now());
  REQUIRE_FALSE(store);
  CHECK(bind_next_socket_to == 0);
  CHECK(store.error().what.find("handshake") == std::string::npos);
}
