#include "ring/listener.h"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("listener: takes the first free port of a range, and says when none is left") {
  const auto any = Listener::open("127.0.0.1", false);
  REQUIRE(any);
  const std::uint16_t taken = any->tcp_endpoint().port;
  REQUIRE(taken < 65535);
  const auto next_to_it =
      Listener::open("127.0.0.1", false, {taken, static_cast<std::uint16_t>(taken + 1)});
  REQUIRE(next_to_it);
  CHECK(next_to_it->tcp_endpoint().port == taken + 1);
  const auto none = Listener::open("127.0.0.1", false, {taken, taken});
  REQUIRE_FALSE(none);
  const std::string ports = std::to_string(taken) + " (DLAUNCH_PORT_RANGE) are taken";
  CHECK(none.error().what.find(ports) != std::string::npos);
}

TEST_CASE("listener: an address to which there is no route is no address") {
  CHECK(local_address_towards("127.0.0.1") == "127.0.0.1");
  CHECK(local_address_towards("no such host") == "");
}
