#include "ring/sites/site_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include <doctest/doctest.h>

namespace dlaunch {
namespace {

using SiteRates = std::vector<std::vector<std::uint64_t>>;

// (slowest line, sum) of the ring.
std::pair<std::uint64_t, std::uint64_t> worth(const SiteRates& rate,
                                              const std::vector<std::int32_t>& ring) {
  std::uint64_t slowest = std::numeric_limits<std::uint64_t>::max(), sum = 0;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const auto from = static_cast<std::size_t>(ring[i]);
    const auto to = static_cast<std::size_t>(ring[(i + 1) % ring.size()]);
    slowest = std::min(slowest, rate[from][to]);
    sum += rate[from][to];
  }
  return {slowest, sum};
}

// The first of the best rings, by trying all.
std::vector<std::int32_t> tried(const SiteRates& rate) {
  std::vector<std::int32_t> ring(rate.size());
  std::iota(ring.begin(), ring.end(), 0);
  std::vector<std::int32_t> best = ring;
  do {
    if (worth(rate, ring) > worth(rate, best)) best = ring;
  } while (std::next_permutation(ring.begin() + 1, ring.end()));
  return best;
}

}  // namespace

TEST_CASE("site order: the best of all rings, of up to 8 sites") {
  std::mt19937 random(1);
  for (std::size_t sites = 1; sites <= 8; ++sites) {
    for (int trial = 0; trial < (sites < 8 ? 40 : 5); ++trial) {
      // Few different rates: many rings are equal, and many lines unknown.
      const unsigned kinds = trial % 2 == 0 ? 3 : 1000;
      SiteRates rate(sites, std::vector<std::uint64_t>(sites));
      for (auto& from : rate) {
        for (auto& it : from) it = random() % kinds;
      }
      CHECK(best_site_order(rate) == tried(rate));
    }
  }
}

TEST_CASE("site order: nothing known, no sites, huge rates") {
  CHECK(best_site_order({}).empty());
  CHECK(best_site_order(SiteRates(4, std::vector<std::uint64_t>(4))) ==
        std::vector<std::int32_t>{0, 1, 2, 3});
  const auto most = std::numeric_limits<std::uint64_t>::max();
  SiteRates rate(3, std::vector<std::uint64_t>(3, most));
  rate[0][1] = 0;
  CHECK(best_site_order(rate) == std::vector<std::int32_t>{0, 2, 1});
}

TEST_CASE("site order: a slow line is avoided, also among 16 sites") {
  SiteRates rate(16, std::vector<std::uint64_t>(16, 10));
  for (std::size_t i = 0; i < 16; ++i) rate[i][(i + 1) % 16] = 1;
  const auto ring = best_site_order(rate);
  CHECK(worth(rate, ring).first == 10);
}

}  // namespace dlaunch
