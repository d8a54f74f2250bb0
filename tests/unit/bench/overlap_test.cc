// The share of an all_reduce in the background that costs no time.
#include "cli/bench/overlap.h"

#include <doctest/doctest.h>

namespace bench {
namespace {

TEST_CASE("the hidden part is the share of the shorter one that cost no time") {
  CHECK(hidden_percent(10, 10, 20) == doctest::Approx(0));
  CHECK(hidden_percent(10, 10, 10) == doctest::Approx(100));
  CHECK(hidden_percent(10, 10, 15) == doctest::Approx(50));
  CHECK(hidden_percent(4, 10, 12) == doctest::Approx(50));
  CHECK(hidden_percent(10, 4, 12) == doctest::Approx(50));
}

TEST_CASE("noise stays within 0 and 100") {
  CHECK(hidden_percent(10, 10, 25) == doctest::Approx(0));
  CHECK(hidden_percent(10, 10, 8) == doctest::Approx(100));
  CHECK(hidden_percent(0, 10, 10) == doctest::Approx(0));
}

}  // namespace
}  // namespace bench
