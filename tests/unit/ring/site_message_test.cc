#include "ring/sites/site_message.h"

#include <doctest/doctest.h>

namespace dlaunch {
namespace {

Merge sound_merge() {
  return {.id = {5, 7},
          .members = {{0, 11}, {2, 13}},
          .contributions = {{{2, 13}, {5, 7}, 100, 42}},
          .order = {2, 0},
          .founding = false,
          .hash = 0};
}

std::vector<SiteMember> sites_of(std::initializer_list<int> sites) {
  std::vector<SiteMember> all;
  for (const int site : sites) all.push_back({site, 10});
  return all;
}

}  // namespace

TEST_CASE("site quorum: more than half, or half with the lowest") {
  const auto four = sites_of({1, 2, 3, 4});
  CHECK(is_site_quorum(four, sites_of({2, 3, 4})));
  CHECK(is_site_quorum(four, sites_of({1, 4})));
  CHECK_FALSE(is_site_quorum(four, sites_of({2, 3})));
  CHECK_FALSE(is_site_quorum(four, sites_of({1})));
  CHECK(is_site_quorum(sites_of({1, 2}), sites_of({1})));
  CHECK_FALSE(is_site_quorum(sites_of({1, 2}), sites_of({2, 3, 4})));
  CHECK_FALSE(is_site_quorum({}, four));
  // Another life of a site is another member.
  CHECK_FALSE(is_site_quorum({{1, 10}}, {{1, 11}}));
  // Two quorums always share a member.
  for (unsigned members = 1; members < 64; ++members) {
    const auto set = [](unsigned bits) {
      std::vector<SiteMember> all;
      for (int i = 0; i < 6; ++i) {
        if ((bits >> i & 1) != 0) all.push_back({i, 1});
      }
      return all;
    };
    for (unsigned part = 0; part < 64; ++part) {
      if ((part & ~members) != 0) continue;
      CHECK_FALSE((is_site_quorum(set(members), set(part)) &&
                   is_site_quorum(set(members), set(members & ~part))));
    }
  }
}

TEST_CASE("site merge: what makes sense") {
  CHECK(makes_sense(sound_merge()));
  CHECK_FALSE(makes_sense(sound_merge(), 2));
  auto merge = sound_merge();
  SUBCASE("members out of order") { std::swap(merge.members[0], merge.members[1]); }
  SUBCASE("two lives of a site") { merge.members[1] = {0, 12}; }
  SUBCASE("no members") { merge.members.clear(), merge.order.clear(); }
  SUBCASE("another ring") { merge.order = {2, 1}; }
  SUBCASE("a contribution for another merge") { merge.contributions[0].id.number = 8; }
  SUBCASE("two of one site") { merge.contributions.push_back(merge.contributions[0]); }
  SUBCASE("none, and no founding") { merge.contributions.clear(); }
  SUBCASE("a founding with some") { merge.founding = true; }
  SUBCASE("no epoch") { merge.id.epoch = 0; }
  CHECK_FALSE(makes_sense(merge));
}

TEST_CASE("site message: what makes no sense is refused") {
  const Contribution payload = sound_merge().contributions[0];
  const auto refuses = [](const SiteMessage& it) { return !decode_site_message(encode(it)); };
  CHECK_FALSE(refuses(SiteAccept{{3, 0}, sound_merge()}));
  CHECK(refuses(SiteAccept{{0, 0}, sound_merge()}));
  CHECK(refuses(SiteAccept{{3, 16}, sound_merge()}));
  CHECK(refuses(SiteDecided{}));
  CHECK(refuses(SiteFound{sound_merge()}));
  CHECK(refuses(SitePromise{{5, 8}, {3, 0}, SiteVote{{2, 0}, sound_merge()}}));
  CHECK_FALSE(refuses(SiteAsk{payload, 90, 10}));
  CHECK(refuses(SiteAsk{payload, 90, 11}));
  CHECK(refuses(SiteAsk{payload, 0, 0}));
  CHECK(refuses(SiteAsk{payload, 101, 0xffffffff}));
  CHECK(refuses(SiteBlock{payload, 98, "abc"}));
  CHECK(refuses(SiteBlock{payload, 98, ""}));
  CHECK(refuses(SiteStateBlock{{5, 6}, 1, 10, 9, "ab"}));
  CHECK_FALSE(refuses(SiteStateBlock{}));
  CHECK_FALSE(decode_site_message(""));
  CHECK_FALSE(decode_site_message(encode(SiteMessage(SiteConsent{3})) + "x"));
}

TEST_CASE("site message: the largest block and status fit") {
  const Contribution payload{{2, 13}, {5, 7}, 10 << 20, 42};
  const std::string block = encode(SiteBlock{payload, 0, std::string(kMostSiteBlock, 'x')});
  CHECK(block.size() <= kMostSiteMessage);
  const auto back = decode_site_message(block);
  REQUIRE(back);
  CHECK(std::get<SiteBlock>(*back).data.size() == kMostSiteBlock);
  SiteStatus status;
  status.whole.assign(5 * kMostSites, payload);
  status.seen.resize(kMostSites);
  status.rates.resize(kMostSites);
  const std::string largest = encode(status);
  CHECK(largest.size() <= kMostSiteMessage);
  const auto read = decode_site_message(largest);
  REQUIRE(read);
  CHECK(std::get<SiteStatus>(*read).whole.size() == status.whole.size());
}

}  // namespace dlaunch
