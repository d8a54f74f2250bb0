#include "elastic/rack_order.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include <doctest/doctest.h>

using namespace dlaunch;

using Order = std::vector<int>;

TEST_CASE("racks: hosts of one rack stand together, in the order of the first of each") {
  CHECK(order_by_rack({}).empty());
  CHECK(order_by_rack({"a"}) == Order{0});
  CHECK(order_by_rack({"a", "b", "a", "b"}) == Order{0, 2, 1, 3});
  CHECK(order_by_rack({"b", "a", "a", "b", "c"}) == Order{0, 3, 1, 2, 4});
  CHECK(order_by_rack({"a", "a", "b", "b"}) == Order{0, 1, 2, 3});
}

TEST_CASE("racks: each level of the tree is ordered so") {
  // The racks of room x stand together, although those of room y are among them.
  CHECK(order_by_rack({"x.1", "y.1", "x.2", "y.2", "x.1", "y.1"}) == Order{0, 4, 2, 1, 5, 3});
  CHECK(order_by_rack({"x.1.a", "x.2.a", "x.1.b", "y", "x.2.a", "x.1.a"}) ==
        Order{0, 5, 2, 1, 4, 3});
  // "x.1" is not below "x.10", and neither are hosts of different levels.
  CHECK(order_by_rack({"x.1", "x.10", "x.1"}) == Order{0, 2, 1});
  CHECK(order_by_rack({"x", "y", "x.1", "x", "x.1"}) == Order{0, 2, 4, 3, 1});
}

TEST_CASE("racks: hosts without one are last, but the first host stays first") {
  CHECK(order_by_rack({"", "", ""}) == Order{0, 1, 2});
  CHECK(order_by_rack({"a", "", "b", "", "a"}) == Order{0, 4, 2, 1, 3});
  CHECK(order_by_rack({"", "a", "", "b", "a"}) == Order{0, 1, 4, 3, 2});
}

TEST_CASE("racks: any hosts stand once each, and no rack or room is in two places") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::string> racks(random() % 20);
    for (auto& rack : racks) {
      if (random() % 8 == 0) continue;
      rack = std::string(1, static_cast<char>('a' + random() % 3));
      if (random() % 4 != 0) rack += "." + std::to_string(random() % 3);
    }
    const Order order = order_by_rack(racks);
    Order numbers = order;
    std::ranges::sort(numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == static_cast<int>(i));
    CHECK(numbers.size() == racks.size());
    if (!order.empty()) CHECK(order.front() == 0);
    for (const std::size_t length : {std::size_t{1}, std::size_t{3}}) {
      std::set<std::string> seen;
      std::string before;
      std::map<std::string, int> last;  // host, by rack
      for (const int host : order) {
        const std::string& rack = racks[static_cast<std::size_t>(host)];
        if (rack.size() < length) {
          before.clear();
          continue;
        }
        const std::string above = rack.substr(0, length);
        if (above != before) CHECK(seen.insert(above).second);
        before = above;
        const auto [known, is_new] = last.try_emplace(rack, host);
        CHECK((is_new || std::exchange(known->second, host) < host));
      }
    }
  }
}

TEST_CASE("racks: how near two of them are") {
  CHECK(shared_switches("s0.s1", "s0.s1") == 2);
  CHECK(shared_switches("s0.s1", "s0.s10") == 1);
  CHECK(shared_switches("s0", "s0.s1") == 1);
  CHECK(shared_switches("s1", "s0.s1") == 0);
  CHECK(shared_switches("", "") == 0);
  CHECK(shared_switches("", "s0") == 0);
}

TEST_CASE("racks: names with dots between them") {
  for (const char* good : {"r", "room1.rack7", "s[0-1].s2", "a.b.c"}) CHECK(is_rack(good));
  for (const char* bad : {"", ".", "a.", ".a", "a..b", "a b", "a\nb", "a\x7f"})
    CHECK_FALSE(is_rack(bad));
}
