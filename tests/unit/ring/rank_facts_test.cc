#include "ring/links/rank_facts.h"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

const RankFacts kFirst{.rank = 0,
                       .host = 7,
                       .codec = WireCodec::none,
                       .round_trip = 0ns,
                       .at = {"rank 0 (pid 1 on a)", "1f", "dlring-00", {"10.0.0.1", 40000}}};
const RankFacts kSecond{.rank = 1,
                        .host = 9,
                        .codec = WireCodec::bf16,
                        .round_trip = 20ms,
                        .rack = "s0.s1",
                        .at = {"rank 1 (pid 1 on b)", "2e", "", {"fd00::1", 40001}}};

}  // namespace

TEST_CASE("rank facts: come back by rank, in whatever order the ranks have said them") {
  for (const std::string& said :
       {encode(kFirst) + encode(kSecond), encode(kSecond) + encode(kFirst)}) {
    const auto all = decode_rank_facts(said, 2);
    REQUIRE(all);
    CHECK((*all)[0] == kFirst);
    CHECK((*all)[1] == kSecond);
  }
}

TEST_CASE("rank facts: each rank speaks once, and makes sense") {
  RankFacts stranger = kSecond;
  stranger.rank = 2;
  RankFacts encoded = kSecond;
  encoded.codec = static_cast<WireCodec>(5);
  RankFacts early = kSecond;
  early.round_trip = -1ns;
  for (const std::string& said :
       {std::string(), encode(kFirst), encode(kFirst) + encode(kFirst),
        encode(kFirst) + encode(kSecond) + encode(kSecond), encode(kFirst) + encode(stranger),
        encode(kFirst) + encode(encoded), encode(kFirst) + encode(early),
        (encode(kFirst) + encode(kSecond)).substr(1)}) {
    const auto all = decode_rank_facts(said, 2);
    REQUIRE_FALSE(all);
    CHECK(all.error().code == Errc::protocol);
  }
}

TEST_CASE("rank facts: a rank's host is named by the lowest rank there") {
  std::vector<RankFacts> all(5, kFirst);
  const std::uint64_t hosts[] = {4, 9, 4, 1, 9};
  for (int r = 0; r < 5; ++r) {
    all[static_cast<std::size_t>(r)].rank = r;
    all[static_cast<std::size_t>(r)].host = hosts[r];
  }
  CHECK(first_on_host(all) == std::vector<int>{0, 1, 0, 3, 1});
  CHECK(own_host_number() == own_host_number());
}
