#include "base/address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <vector>

#include <doctest/doctest.h>

#include "base/socket.h"
#include "base/unique_fd.h"

using namespace dlaunch;

namespace {

UniqueFd listen_on(const char* host, int backlog, SocketAddress& address) {
  const auto any = resolve(host, 0, AI_NUMERICHOST);
  REQUIRE(any);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(fd.get(), any->front().get(), any->front().size) == 0);
  REQUIRE(::listen(fd.get(), backlog) == 0);
  auto bound = bound_address(fd.get());
  REQUIRE(bound);
  address = *bound;
  return fd;
}

}  // namespace

TEST_CASE("numeric addresses of both families are parsed") {
  const struct {
    const char* host;
    bool loopback;
  } cases[] = {{"127.0.0.1", true}, {"127.9.8.7", true}, {"::1", true},
               {"10.0.0.7", false}, {"fd00::7", false},  {"128.0.0.1", false}};
  for (const auto& c : cases) {
    CAPTURE(c.host);
    const auto found = resolve(c.host, 29500, AI_NUMERICHOST);
    REQUIRE(found);
    REQUIRE(found->size() == 1);
    CHECK(numeric_host(found->front()) == c.host);
    CHECK(port_of(found->front()) == 29500);
    CHECK(is_loopback(found->front().get()) == c.loopback);
  }
}

TEST_CASE("an error has the reason, and the caller adds the address") {
  const auto found = resolve("ten.zero", 1, AI_NUMERICHOST);
  REQUIRE_FALSE(found);
  CHECK(found.error().code == Errc::io);
  CHECK(found.error().what == ::gai_strerror(EAI_NONAME));
}

TEST_CASE("a bound socket tells its address and the port it got") {
  const auto any = resolve("127.0.0.1", 0, AI_NUMERICHOST);
  REQUIRE(any);
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(fd.get(), any->front().get(), any->front().size) == 0);
  const auto bound = bound_address(fd.get());
  REQUIRE(bound);
  CHECK(numeric_host(*bound) == "127.0.0.1");
  CHECK(port_of(*bound) != 0);
  CHECK(bound_address(-1).error().os_errno == EBADF);
}

TEST_CASE("the route to a loopback address has a loopback source") {
  const auto us = resolve("127.0.0.5", 9, AI_NUMERICHOST);
  REQUIRE(us);
  const auto own = address_towards(us->front());
  REQUIRE(own);
  CHECK(numeric_host(*own) == "127.0.0.1");
}

TEST_CASE("an address that drops packets leaves time for the others") {
  SocketAddress full, good;
  const UniqueFd drops = listen_on("127.0.0.1", 0, full), answers = listen_on("127.0.0.1", 8, good);
  std::vector<UniqueFd> waiting;  // a listener whose queue is full drops what else comes
  for (int i = 0; i < 4; ++i) {
    auto fd = begin_to_connect(full.get(), full.size, "fill");
    REQUIRE(fd);
    waiting.push_back(std::move(*fd));
  }
  const TimePoint deadline = steady_now() + std::chrono::seconds(10);
  const auto fd = connect_to_one_of({full, good}, "a name", deadline);
  REQUIRE(fd);
  CHECK(steady_now() < deadline);
  const auto none = connect_to_one_of({full}, "a name", steady_now());
  REQUIRE_FALSE(none);
  CHECK(none.error().what.starts_with("a name: "));
}

TEST_CASE("a host's name is neither numeric nor one of loopback's") {
  for (const char* host : {"127.0.0.1", "127.0.1.1", "::1", "10.0.0.7", "fd00::7", "localhost",
                           "localhost.localdomain", "ip6-localhost", "ip6-loopback"}) {
    CAPTURE(host);
    CHECK_FALSE(is_host_name(host));
  }
  for (const char* host : {"node1", "node-1.cluster"}) CHECK(is_host_name(host));
}
