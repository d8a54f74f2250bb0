#include "ring/links/rank_address.h"

#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

const RankAddress kOwn{.at = {"rank 1 (pid 5 on a)", "1f", "dlring-00", {"10.0.0.1", 4711}},
                       .ranks = 4,
                       .plan = "all_reduce::ring",
                       .links = LinkChoice::few,
                       .verify = VerifyMode::full};

std::string mismatch(const RankAddress& other) {
  const auto checked = check_common(kOwn, other, 2);
  if (checked) return "";
  CHECK(checked.error().code == Errc::mismatch);
  CHECK(checked.error().rank == 2);
  return checked.error().what;
}

}  // namespace

TEST_CASE("rank address: it is read as it was written") {
  const auto read = decode_rank_address(encode(kOwn));
  REQUIRE(read);
  CHECK(encode(*read) == encode(kOwn));
  CHECK(read->at.tcp.port == 4711);
  CHECK(read->links == LinkChoice::few);
  CHECK(read->verify == VerifyMode::full);
}

TEST_CASE("rank address: no prefix of one is an address, nor is one with an unknown choice") {
  const std::string bytes = encode(kOwn);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_rank_address(bytes.substr(0, size)));
  }
  RankAddress later = kOwn;
  later.links = static_cast<LinkChoice>(3);
  CHECK_FALSE(decode_rank_address(encode(later)));
  later = kOwn;
  later.verify = static_cast<VerifyMode>(4);
  CHECK_FALSE(decode_rank_address(encode(later)));
}

TEST_CASE("rank address: what ranks do not have in common is named, with both values") {
  RankAddress other = kOwn;
  other.at.who = "rank 2 (pid 6 on a)";
  other.at.unix_name = "dlring-01";
  CHECK(mismatch(other).empty());
  other.verify = VerifyMode::off;
  CHECK(mismatch(other).find("DLAUNCH_VERIFY: 'full' and 'off'") != std::string::npos);
  other.links = LinkChoice::automatic;
  CHECK(mismatch(other) ==
        "init: rank 1 (pid 5 on a) and rank 2 (pid 6 on a) have different DLAUNCH_LINKS: 'few' and "
        "'auto'");
  other.plan = "";
  CHECK(mismatch(other).find("DLAUNCH_PLAN: 'all_reduce::ring' and ''") != std::string::npos);
  other.ranks = 5;
  CHECK(mismatch(other) ==
        "init: rank 1 (pid 5 on a) is one of 4 ranks, rank 2 (pid 6 on a) is one of 5");
}
