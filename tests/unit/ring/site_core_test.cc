// SiteCore: foundings, what a site applies, and what it tells.
#include "tests/unit/ring/site_core_world.h"

namespace dlaunch::site_core_world {

TEST_CASE("site core: a founding needs all sites, and their consent") {
  SiteBench bench(0, 3);
  bench.meet(1);
  CHECK(bench.sent<SiteFound>().empty());
  bench.meet(2);
  const auto asks = bench.sent<SiteFound>();
  REQUIRE(asks.size() == 2);
  const Merge founding = asks[0].second.merge;
  CHECK(founding.id == MergeId{50, 0});
  CHECK(founding.members == std::vector{life(0), life(1), life(2)});
  CHECK(founding.hash == 7);
  bench.say(1, SiteConsent{50});
  bench.say(1, SiteConsent{50});
  CHECK(bench.core().decided() == MergeId{});
  bench.say(2, SiteConsent{50});
  CHECK(bench.core().decided() == MergeId{50, 0});
  CHECK(bench.core().held() == MergeId{50, 0});
  CHECK(bench.take<SiteCore::Adopt>().size() == 1);
  CHECK(bench.core().is_proposer());
}

TEST_CASE("site core: the site with the highest state founds, the lowest among equals") {
  SiteBench bench(1, 3, {40, 6});
  bench.meet(0, MergeId{40, 5});
  SUBCASE("another is higher") { bench.meet(2, MergeId{40, 7}); }
  SUBCASE("a lower site is equal") { bench.meet(0, MergeId{40, 6}), bench.meet(2, MergeId{40, 5}); }
  SUBCASE("this one is") {
    bench.meet(2, MergeId{40, 6});
    const auto asks = bench.sent<SiteFound>();
    REQUIRE(asks.size() == 2);
    CHECK(asks[0].second.merge.id == MergeId{50, 6});
    return;
  }
  CHECK(bench.sent<SiteFound>().empty());
}

TEST_CASE("site core: an attempt to found ends when a site is lost, and the next has a new epoch") {
  SiteBench bench(0, 2);
  bench.meet(1);
  CHECK(bench.sent<SiteFound>().at(0).second.merge.id.epoch == 50);
  bench.tell(SiteCore::PeerDown{1});
  bench.wait(seconds(3));
  bench.tell(SiteCore::PeerUp{{1, 999}});
  bench.say(1, bench.status());
  CHECK(bench.sent<SiteFound>().at(0).second.merge.id.epoch == 51);
  bench.say(1, SiteConsent{50});
  CHECK(bench.core().decided() == MergeId{});
}

TEST_CASE("site core: consent, and no vote in earlier epochs until the founder gives up") {
  SiteBench bench = member(1, {0, 1, 2});
  Merge founding = first_founding({0, 1, 2});
  founding.id = {60, 0};
  SUBCASE("none while a quorum is alive") {
    bench.say(0, SiteFound{founding});
    CHECK(bench.sent<SiteConsent>().empty());
  }
  SUBCASE("given when the members have restarted") {
    for (const int site : {0, 2}) {
      founding.members[static_cast<std::size_t>(site)].incarnation = 900;
      bench.tell(SiteCore::PeerUp{{site, 900}});
      bench.say(site, bench.status());
    }
    SiteStatus founder = bench.status();
    founder.founding = 60;
    bench.say(0, founder);
    bench.say(0, SiteFound{founding});
    CHECK(bench.sent<SiteConsent>().size() == 1);
    bench.say(0, SitePrepare{{50, 1}, {9, 0}});
    CHECK(bench.sent<SitePromise>().empty());
    SUBCASE("the founder gives up") {
      founder.founding = 0;
      bench.say(0, founder);
      bench.say(0, SitePrepare{{50, 1}, {9, 0}});
      CHECK(bench.sent<SitePromise>().size() == 1);
    }
    SUBCASE("the founding comes") {
      bench.say(0, SiteDecided{founding});
      CHECK(bench.core().held() == MergeId{60, 0});
      bench.say(0, SitePrepare{{60, 1}, {9, 0}});
      CHECK(bench.sent<SitePromise>().size() == 1);
    }
  }
}

TEST_CASE("site core: a late contribution is forgotten at once") {
  SiteBench bench = member(1, {0, 1, 2});
  bench.tell(SiteCore::Contributed{gift(1, 2)});
  CHECK(bench.take<SiteCore::Forget>().size() == 1);
  bench.say(0, SiteDecided{merge_of(1, {0})});
  bench.tell(SiteCore::Contributed{gift(1, 1)});
  CHECK(bench.take<SiteCore::Forget>().size() == 1);
}

TEST_CASE("site core: a contribution waits for the news of the merge before it") {
  SiteBench bench(1, 3);
  bench.meet(0, MergeId{50, 9});
  bench.say(0, SiteDecided{merge_of(9, {0})});
  bench.tell(SiteCore::TookState{{50, 10}, 7});
  bench.tell(SiteCore::Contributed{gift(1, 11)});
  CHECK(bench.take<SiteCore::Forget>().empty());
  bench.say(0, SiteDecided{merge_of(10, {0})});
  SUBCASE("and is offered then") {
    const auto statuses = bench.sent<SiteStatus>();
    REQUIRE_FALSE(statuses.empty());
    CHECK(statuses.back().second.whole == std::vector{gift(1, 11)});
  }
  SUBCASE("or is late") {
    bench.say(0, SiteDecided{merge_of(11, {0})});
    const auto forgotten = bench.take<SiteCore::Forget>();
    REQUIRE(forgotten.size() == 1);
    CHECK(forgotten[0].payload == gift(1, 11));
  }
}

TEST_CASE("site core: a merge is applied when its payloads are here, one after the other") {
  SiteBench bench = member(1, {0, 1, 2});
  bench.say(0, SiteDecided{merge_of(1, {0})});
  bench.say(0, SiteDecided{merge_of(2, {0})});
  CHECK(bench.take<SiteCore::Apply>().empty());
  bench.give(0, 2);
  CHECK(bench.take<SiteCore::Apply>().empty());
  bench.give(0, 1);
  const auto first = bench.take<SiteCore::Apply>();
  REQUIRE(first.size() == 1);
  CHECK(first[0].merge.id == MergeId{50, 1});
  bench.tell(SiteCore::Applied{{50, 1}, 8});
  CHECK(bench.take<SiteCore::Apply>().size() == 1);
  bench.tell(SiteCore::Applied{{50, 2}, 9});
  CHECK(bench.core().held() == MergeId{50, 2});
}

TEST_CASE("site core: an ask that came before the news of the merge gets its answer") {
  SiteBench bench = member(1, {0, 1, 2});
  bench.say(2, SiteAsk{gift(0, 1), 0, 8});
  bench.say(0, SiteDecided{merge_of(1, {0, 1, 2})});
  CHECK(bench.take<SiteCore::Serve>().empty());
  bench.give(0, 1);
  const auto served = bench.take<SiteCore::Serve>();
  REQUIRE(served.size() == 1);
  CHECK(served[0].block == PayloadAsk{2, gift(0, 1), 0, 8});
}

TEST_CASE("site core: peers that are behind get the next merges, once") {
  SiteBench bench = member(1, {0, 1, 2});
  for (std::uint64_t number = 1; number <= 6; ++number) {
    bench.say(0, SiteDecided{merge_of(number, {0})});
  }
  (void)bench.take<SiteCore::Send>();
  bench.say(2, bench.status(MergeId{50, 3}, MergeId{50, 4}));
  auto decided = bench.sent<SiteDecided>();
  REQUIRE(decided.size() == 2);
  CHECK(decided[0].second.merge.id == MergeId{50, 5});
  CHECK(decided[1].second.merge.id == MergeId{50, 6});
  bench.say(2, bench.status(MergeId{50, 3}, MergeId{50, 4}));
  CHECK(bench.sent<SiteDecided>().empty());
  // Further behind: the kept merges.
  bench.tell(SiteCore::PeerUp{life(2)});
  bench.say(2, bench.status(MergeId{}, MergeId{}));
  CHECK(bench.sent<SiteDecided>().size() == kKeptMerges);
}

TEST_CASE("site core: a site that is far behind takes the state of another") {
  SiteBench bench(1, 3);
  bench.meet(0, MergeId{50, 9});
  bench.say(0, SiteDecided{merge_of(9, {0})});
  const auto fetches = bench.take<SiteCore::FetchState>();
  REQUIRE(fetches.size() == 1);
  CHECK(fetches[0].from == 0);
  CHECK(fetches[0].at_least == MergeId{50, 9});
  SUBCASE("it comes") {
    bench.tell(SiteCore::TookState{{50, 9}, 7});
    CHECK(bench.core().held() == MergeId{50, 9});
    CHECK(bench.take<SiteCore::FetchState>().empty());
  }
  SUBCASE("it fails: again, but not at once") {
    bench.tell(SiteCore::StateFailed{0});
    CHECK(bench.take<SiteCore::FetchState>().empty());
    bench.wait(seconds(2));
    CHECK(bench.take<SiteCore::FetchState>().size() == 1);
  }
  SUBCASE("its source is lost, without an answer: from another one") {
    bench.tell(SiteCore::PeerDown{0});
    bench.meet(2, MergeId{50, 9});
    const auto again = bench.take<SiteCore::FetchState>();
    REQUIRE(again.size() == 1);
    CHECK(again[0].from == 2);
  }
  SUBCASE("its source connects once more, without an answer: again") {
    bench.meet(0, MergeId{50, 9});
    bench.wait(seconds(2));
    CHECK(bench.take<SiteCore::FetchState>().size() == 1);
  }
  SUBCASE("all of it is here when its source is lost") {
    bench.tell(SiteCore::StateArrived{0});
    bench.tell(SiteCore::PeerDown{0});
    bench.meet(2, MergeId{50, 9});
    CHECK(bench.take<SiteCore::FetchState>().empty());
    bench.tell(SiteCore::TookState{{50, 9}, 7});
    CHECK(bench.core().held() == MergeId{50, 9});
  }
}

TEST_CASE("site core: merges that are decided while a state comes are kept, and applied to it") {
  SiteBench bench(1, 3);
  bench.meet(0, MergeId{50, 9});
  for (std::uint64_t number = 9; number <= 19; ++number) {
    bench.say(0, SiteDecided{merge_of(number, {0})});
    if (number > 9) bench.give(0, number);
  }
  bench.tell(SiteCore::TookState{{50, 9}, 7});
  for (std::uint64_t number = 10; number <= 19; ++number) {
    const auto applies = bench.take<SiteCore::Apply>();
    REQUIRE(applies.size() == 1);
    CHECK(applies[0].merge.id.number == number);
    bench.tell(SiteCore::Applied{{50, number}, 7});
  }
  // Now it keeps as many as the others do.
  bench.tell(SiteCore::PeerUp{life(2)});
  bench.say(2, bench.status(MergeId{}, MergeId{}));
  CHECK(bench.sent<SiteDecided>().size() == kKeptMerges);
}

TEST_CASE("site core: the proposer waits for a site that is a few merges behind") {
  SiteBench bench = member(0, {0, 1});
  bench.tell(SiteCore::PeerDown{1});
  bench.wait(seconds(6));
  for (std::uint64_t number = 1; number <= 6; ++number) {
    bench.tell(SiteCore::Contributed{gift(0, number)});
    bench.tell(SiteCore::Applied{{50, number}, 7});
  }
  REQUIRE(bench.core().decided() == MergeId{50, 6});
  SUBCASE("few") {
    bench.meet(1, MergeId{50, 2});
    bench.tell(SiteCore::Contributed{gift(0, 7)});
    CHECK(bench.core().decided() == MergeId{50, 6});
  }
  SUBCASE("too many") {
    bench.meet(1, MergeId{50, 1});
    bench.tell(SiteCore::Contributed{gift(0, 7)});
    CHECK(bench.core().decided() == MergeId{50, 7});
  }
}

TEST_CASE("site core: a founding is adopted by the same state, and its state taken by others") {
  SiteBench same(1, 2, {40, 3}, 7), other(1, 2, {40, 3}, 8);
  Merge founding = first_founding({0, 1});
  founding.id.number = 3;
  for (SiteBench* bench : {&same, &other}) {
    bench->meet(0, MergeId{50, 3});
    bench->say(0, SiteDecided{founding});
  }
  CHECK(same.take<SiteCore::Adopt>().size() == 1);
  CHECK(same.core().held() == MergeId{50, 3});
  CHECK(other.take<SiteCore::FetchState>().size() == 1);
}

TEST_CASE("site core: two states after one merge are an error, once") {
  SiteBench bench = member(1, {0, 1, 2});
  SiteStatus peer = bench.status();
  peer.hash = 8;
  bench.say(0, peer);
  bench.say(0, peer);
  const auto errors = bench.take<SiteCore::Mismatch>();
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].site == 0);
  CHECK(errors[0].theirs == 8);
}

TEST_CASE("site core: it says once which sites are missing") {
  SiteBench bench(0, 3);
  bench.meet(2);
  bench.wait(seconds(9));
  CHECK(bench.take<SiteCore::Missing>().empty());
  bench.wait(seconds(30));
  const auto missing = bench.take<SiteCore::Missing>();
  REQUIRE(missing.size() == 1);
  CHECK(missing[0].sites == std::vector{1});
}

TEST_CASE("site core: it gives up once, after it has had no quorum for long") {
  SiteBench bench = member(1, {0, 1, 2});
  bench.tell(SiteCore::PeerDown{0});
  bench.wait(seconds(400));  // it reaches a quorum
  CHECK(bench.take<SiteCore::GiveUp>().empty());
  bench.tell(SiteCore::PeerDown{2});
  bench.wait(seconds(290));
  bench.meet(2);
  bench.tell(SiteCore::PeerDown{2});
  bench.wait(seconds(290));
  CHECK(bench.take<SiteCore::GiveUp>().empty());
  bench.wait(seconds(60));
  const auto gave_up = bench.take<SiteCore::GiveUp>();
  REQUIRE(gave_up.size() == 1);
  CHECK(gave_up[0].missing == std::vector{0, 2});
}

TEST_CASE("site core: no site has the newest state, nor can make it: all found again") {
  SiteBench bench = member(0, {0, 1, 2});
  // Merge 1 was decided, but the site that had given it restarted with the state before.
  Merge lost = merge_of(1, {0, 1, 2});
  lost.contributions = {gift(2, 1)};
  bench.say(1, SiteDecided{lost});
  bench.say(1, bench.status(MergeId{50, 0}));
  bench.tell(SiteCore::PeerUp{{2, 900}});
  bench.say(2, bench.status(MergeId{50, 0}));
  bench.wait(seconds(4));
  CHECK(bench.sent<SiteFound>().empty());
  bench.wait(seconds(3));
  const auto asks = bench.sent<SiteFound>();
  REQUIRE_FALSE(asks.empty());
  CHECK(asks[0].second.merge.id == MergeId{51, 0});
}

TEST_CASE("site core: payloads are kept for sites that are behind, and then forgotten") {
  SiteBench bench(0, 1);
  for (std::uint64_t number = 1; number <= 6; ++number) {
    bench.tell(SiteCore::Contributed{gift(0, number)});
    bench.tell(SiteCore::Applied{{50, number}, 8});
  }
  const auto forgotten = bench.take<SiteCore::Forget>();
  REQUIRE(forgotten.size() == 2);
  CHECK(forgotten[0].payload == gift(0, 1));
  CHECK(forgotten[1].payload == gift(0, 2));
}

}  // namespace dlaunch::site_core_world
