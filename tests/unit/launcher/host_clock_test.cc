#include "launcher/wire/host_clock.h"

#include <doctest/doctest.h>

#include "tests/unit/start.h"

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("before the first ping returns, the opening of the connection counts") {
  const HostClock clock(kStart);
  CHECK(clock.origin(kStart + 1s) == kStart);
  CHECK_FALSE(clock.error(kStart + 1s));
}

TEST_CASE("the round trip's middle is where the other clock was read, to half of it") {
  HostClock clock(kStart);
  // There it was opened 3 ms later than here; 1 ms there, 1 ms back.
  clock.add(kStart + 100ms, kStart + 102ms, 98ms);
  CHECK(clock.origin(kStart + 102ms) == kStart + 3ms);
  CHECK(clock.error(kStart + 102ms) == 1ms);
}

TEST_CASE("the fastest round trip counts, whenever it came") {
  HostClock clock(kStart);
  clock.add(kStart + 100ms, kStart + 140ms, 130ms);  // 33 ms there, 7 back
  clock.add(kStart + 200ms, kStart + 200ms + 200us, 197ms + 100us);
  clock.add(kStart + 300ms, kStart + 380ms, 310ms);
  CHECK(clock.origin(kStart + 400ms) == kStart + 3ms);
  CHECK(*clock.error(kStart + 400ms) >= 100us);
  CHECK(*clock.error(kStart + 400ms) < 150us);
}

TEST_CASE("a ping loses precision every second, and a newer one replaces it") {
  HostClock clock(kStart);
  clock.add(kStart, kStart + 200us, 100us);
  CHECK(*clock.error(kStart + 200us + 10s) == 100us + 1ms);
  clock.add(kStart + 10s, kStart + 10s + 400us, 10s - 500us + 200us);
  CHECK(clock.origin(kStart + 11s) == kStart + 500us);
  CHECK(*clock.error(kStart + 11s) < 310us);
}

TEST_CASE("only so many pings are kept, among them the best") {
  HostClock clock(kStart);
  clock.add(kStart, kStart + 2us, 1us);
  for (int i = 1; i < 100; ++i) {
    clock.add(kStart + 1ms * i, kStart + 1ms * i + 500us, 1ms * i);
  }
  CHECK(*clock.error(kStart + 100ms) < 20us);
  CHECK(clock.origin(kStart + 100ms) == kStart);
}

TEST_CASE("a ping that came back before it was sent is ignored") {
  HostClock clock(kStart);
  clock.add(kStart + 1s, kStart, 0s);
  CHECK_FALSE(clock.error(kStart + 1s));
}
