#include "ring/stream/spin_policy.h"

#include <doctest/doctest.h>

using namespace dlaunch;
using std::chrono::microseconds;
using std::chrono::seconds;

TEST_CASE("spin policy: polls while waits are short, sleeps once they are not, and comes back") {
  SpinPolicy spin;
  CHECK(spin.pays());  // until something else is known
  for (int i = 0; i < 100; ++i) spin.waited(microseconds(30));
  CHECK(spin.pays());
  spin.waited(seconds(10));  // one late rank
  CHECK(spin.pays());
  for (int i = 0; i < 4; ++i) spin.waited(microseconds(500));  // 64 KiB at 1 Gbit/s
  CHECK_FALSE(spin.pays());
  for (int i = 0; i < 100; ++i) spin.waited(seconds(1));
  CHECK_FALSE(spin.pays());
  for (int i = 0; i < 16; ++i) spin.waited(microseconds(30));
  CHECK(spin.pays());
}
