#include "ring/stream/socket_count.h"

#include <functional>
#include <random>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

// How many sockets it uses in the end, where a call with n of them takes us(n).
std::size_t settles(SocketCount count, std::size_t bytes, const std::function<double(int)>& us) {
  for (int call = 0; call < 200; ++call) {
    const auto n = static_cast<int>(count.begin(bytes));
    count.end(Duration(static_cast<std::int64_t>(us(n) * 1000)));
  }
  CHECK(count.begin(bytes) == count.best(bytes));
  return count.best(bytes);
}

}  // namespace

TEST_CASE("sockets: the fastest number is found, whatever the first number is") {
  for (const std::size_t first : {1, 4, 16}) {
    CHECK(settles({16, first}, 1 << 20, [](int n) { return 1000.0 / n; }) == 16);
    CHECK(settles({16, first}, 1 << 20, [](int n) { return 100.0 * n; }) == 1);
    CHECK(settles({16, first}, 1 << 20, [](int n) { return 800.0 / n + 50 * n; }) == 4);
  }
}

TEST_CASE(
    "sockets: what makes no difference changes nothing, nor does noise or a first slow call") {
  std::mt19937 random(1);
  const auto noise = [&] { return static_cast<double>(random() % 100); };
  CHECK(settles({16, 4}, 1 << 20, [](int) { return 1000.0; }) == 4);
  CHECK(settles({16, 4}, 1 << 20, [&](int) { return 2000 + noise(); }) == 4);
  CHECK(settles({16, 1}, 1 << 20, [&](int n) {
          return (random() % 7 == 0 ? 50'000 : 4000.0 / n) + noise() / 10;
        }) == 16);
}

TEST_CASE("sockets: small calls use one, and each size has its own number") {
  SocketCount count(8, 8);
  CHECK(count.begin(1000) == 1);
  count.end(Duration(1));
  for (int call = 0; call < 200; ++call) {
    for (const std::size_t bytes : {std::size_t{1} << 16, std::size_t{1} << 24}) {
      const auto n = static_cast<std::int64_t>(count.begin(bytes));
      count.end(Duration(bytes > 1 << 20 ? 8'000'000 / n : 1000 * n));
    }
  }
  CHECK(count.best(1 << 16) == 1);
  CHECK(count.best(1 << 24) == 8);
  CHECK(SocketCount(1, 1).begin(1 << 20) == 1);
}
