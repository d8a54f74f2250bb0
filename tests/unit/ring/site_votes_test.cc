// SiteCore: the agreement on the open slot.
#include "tests/unit/ring/site_core_world.h"

namespace dlaunch::site_core_world {

TEST_CASE("site core: one site alone founds, proposes and decides") {
  SiteBench bench(0, 1);
  CHECK(bench.core().held() == MergeId{50, 0});
  bench.wait(seconds(20));
  (void)bench.take<SiteCore::Send>();
  bench.tell(SiteCore::Contributed{gift(0, 1)});
  REQUIRE(bench.take<SiteCore::Apply>().size() == 1);
  bench.tell(SiteCore::Applied{{50, 1}, 8});
  bench.tell(SiteCore::Contributed{gift(0, 2)});
  CHECK(bench.take<SiteCore::Apply>().size() == 1);
}

TEST_CASE("site core: the proposer waits for all connected sites, then at most for grace") {
  SiteBench bench = ready_proposer();
  bench.give(1, 1);
  CHECK(bench.sent<SiteAccept>().empty());
  bench.wait_with(seconds(30), {1, 2}, bench.status());
  CHECK(bench.sent<SiteAccept>().empty());  // one of three is no quorum, however long it takes
  bench.tell(SiteCore::Contributed{gift(0, 1)});
  SUBCASE("the third comes") {
    bench.give(2, 1);
    const auto accepts = bench.sent<SiteAccept>();
    REQUIRE(accepts.size() == 2);
    CHECK(accepts[0].second.merge.contributions.size() == 3);
  }
  SUBCASE("grace is over") {
    bench.wait_with(milliseconds(9900), {1, 2}, bench.status());
    CHECK(bench.sent<SiteAccept>().empty());
    bench.wait_with(milliseconds(200), {1, 2}, bench.status());
    const auto accepts = bench.sent<SiteAccept>();
    REQUIRE(accepts.size() >= 2);  // a heartbeat repeats them
    CHECK(accepts[0].second.merge.contributions == std::vector{gift(0, 1), gift(1, 1)});
    // The third is connected, and holds the merge before: it remains a member.
    CHECK(accepts[0].second.merge.members.size() == 3);
  }
  SUBCASE("the third is lost") {
    bench.tell(SiteCore::PeerDown{2});
    const auto accepts = bench.sent<SiteAccept>();
    REQUIRE(accepts.size() == 1);
    CHECK(accepts[0].second.merge.members == std::vector{life(0), life(1)});
  }
  SUBCASE("the third is lost here, but a peer sees it") {
    SiteStatus peer = bench.status();
    peer.whole = {gift(1, 1)};
    peer.seen = {{life(2), {50, 0}}};
    bench.say(1, peer);
    bench.tell(SiteCore::PeerDown{2});
    CHECK(bench.sent<SiteAccept>().empty());
  }
}

TEST_CASE("site core: the proposer does not wait for a site that is silent") {
  SiteBench bench = ready_proposer();
  bench.give(1, 1);
  bench.tell(SiteCore::Contributed{gift(0, 1)});
  SiteStatus peer = bench.status();
  peer.whole = {gift(1, 1)};
  SUBCASE("for three heartbeats") {
    bench.wait_with(milliseconds(1900), {1}, peer);
    CHECK(bench.sent<SiteAccept>().empty());
    bench.wait_with(milliseconds(1200), {1}, peer);
    const auto accepts = bench.sent<SiteAccept>();
    REQUIRE(accepts.size() >= 2);
    CHECK(accepts[0].second.merge.contributions == std::vector{gift(0, 1), gift(1, 1)});
    CHECK(accepts[0].second.merge.members == std::vector{life(0), life(1)});
    CHECK_FALSE(bench.core().is_heard(life(2)));
    bench.tell(SiteCore::Heard{2});
    CHECK(bench.core().is_heard(life(2)));
  }
  SUBCASE("but for one that a peer hears") {
    peer.seen = {{life(2), {50, 0}}};
    bench.wait_with(milliseconds(9000), {1}, peer);
    CHECK(bench.sent<SiteAccept>().empty());
  }
  SUBCASE("but for one of which only a part of a message came") {
    for (int i = 0; i < 18; ++i) {
      bench.tell(SiteCore::Heard{2});
      bench.wait_with(milliseconds(500), {1}, peer);
    }
    CHECK(bench.sent<SiteAccept>().empty());
  }
  SUBCASE("and a pause of its own makes no site silent") {
    bench.sleep(seconds(9));
    CHECK(bench.sent<SiteAccept>().empty());
    CHECK(bench.core().is_heard(life(2)));
  }
  SUBCASE("but for one of which another life is heard, it does not wait") {
    peer.seen = {{{2, life(2).incarnation + 1}, {50, 0}}};
    bench.wait_with(milliseconds(3100), {1}, peer);
    CHECK_FALSE(bench.sent<SiteAccept>().empty());
  }
}

TEST_CASE("site core: silence is three heartbeats, or three fifths of a long time-out") {
  SiteCoreConfig config;
  CHECK(config.silent_beats() == 3);
  CHECK(config.silence() == seconds(3));
  config.timeout = seconds(60);
  CHECK(config.silent_beats() == 36);
  config.timeout = seconds(1);
  config.heartbeat = milliseconds(500);
  CHECK(config.silent_beats() == 3);
  CHECK(config.silence() == seconds(1));
}

TEST_CASE("site core: the others do not hear of a site that is silent") {
  SiteBench bench = member(0, {0, 1, 2});
  const auto seen = [&] {
    const SiteStatus last = bench.sent<SiteStatus>().back().second;
    std::vector<int> sites;
    for (const SiteSeen& it : last.seen) sites.push_back(it.member.site);
    return sites;
  };
  bench.wait_with(seconds(6), {1, 2}, bench.status());
  CHECK(seen() == std::vector{1, 2});
  bench.wait_with(seconds(4), {1}, bench.status());
  CHECK(seen() == std::vector{1});
  bench.wait_with(seconds(2), {1, 2}, bench.status());
  CHECK(seen() == std::vector{1, 2});
}

TEST_CASE("site core: a merge leaves out what differs from the contributions of a quorum") {
  SiteBench bench = ready_proposer();
  const auto bring = [&](int site, std::uint64_t kind) {
    SiteStatus it = bench.status();
    it.whole = {gift(site, 1)};
    bench.say(site, it);
    bench.tell(SiteCore::Arrived{site, gift(site, 1), 0, 8});
    bench.tell(SiteCore::Checked{gift(site, 1), true, kind});
  };
  SUBCASE("one of three differs: no wait for it") {
    bench.tell(SiteCore::Contributed{gift(0, 1), 5});
    bring(1, 4);
    CHECK(bench.sent<SiteAccept>().empty());
    bring(2, 4);
    const auto accepts = bench.sent<SiteAccept>();
    REQUIRE_FALSE(accepts.empty());
    CHECK(accepts[0].second.merge.contributions == merge_of(1, {1, 2}).contributions);
  }
  SUBCASE("all differ: after the grace, so that they learn it") {
    bench.tell(SiteCore::Contributed{gift(0, 1), 5});
    bring(1, 4);
    bring(2, 3);
    CHECK(bench.sent<SiteAccept>().empty());
    bench.wait_with(seconds(11), {1, 2}, bench.status());
    const auto accepts = bench.sent<SiteAccept>();
    REQUIRE_FALSE(accepts.empty());
    CHECK(accepts[0].second.merge.contributions == merge_of(1, {0}).contributions);
  }
}

TEST_CASE("site core: a quorum of votes decides, and the next slot is prepared at once") {
  SiteBench bench = ready_proposer();
  bench.tell(SiteCore::Contributed{gift(0, 1)});
  bench.give(1, 1);
  bench.give(2, 1);
  const SiteAccept accept = bench.sent<SiteAccept>().at(0).second;
  bench.say(1, SiteAccepted{{50, 1}, {accept.ballot.count + 1, 0}});
  CHECK(bench.core().decided() == MergeId{50, 0});
  bench.say(1, SiteAccepted{{50, 1}, accept.ballot});
  CHECK(bench.core().decided() == MergeId{50, 1});
  const auto sends = bench.take<SiteCore::Send>();
  const auto count = [&](auto kind) {
    return std::count_if(sends.begin(), sends.end(), [&](const auto& it) {
      return std::holds_alternative<decltype(kind)>(it.message);
    });
  };
  CHECK(count(SiteDecided{}) == 2);
  CHECK(count(SitePrepare{}) == 2);
}

TEST_CASE("site core: members that restarted or never were do not vote") {
  SiteBench bench = ready_proposer();
  bench.tell(SiteCore::Contributed{gift(0, 1)});
  bench.give(1, 1);
  bench.give(2, 1);
  const SiteAccept accept = bench.sent<SiteAccept>().at(0).second;
  bench.tell(SiteCore::PeerUp{{1, 900}});
  bench.say(1, SiteAccepted{{50, 1}, accept.ballot});
  CHECK(bench.core().decided() == MergeId{50, 0});
  // Nor does the restarted site answer.
  SiteBench restarted(1, 3);
  restarted.tell(SiteCore::PeerUp{life(0)});
  Merge other = first_founding({0, 1, 2});
  other.members[1].incarnation = 1;
  restarted.say(0, SiteDecided{other});
  restarted.say(0, SitePrepare{{50, 1}, {1, 0}});
  restarted.say(0, SiteAccept{{1, 0}, merge_of(1, {0})});
  CHECK(restarted.sent<SitePromise>().empty());
  CHECK(restarted.sent<SiteAccepted>().empty());
}

TEST_CASE("site core: an acceptor keeps its promise") {
  SiteBench bench = member(1, {0, 1, 2});
  bench.say(2, SitePrepare{{50, 1}, {5, 2}});
  CHECK(bench.sent<SitePromise>().size() == 1);
  bench.say(0, SitePrepare{{50, 1}, {5, 0}});
  const auto refusals = bench.sent<SiteRefusal>();
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].first == 0);
  CHECK(refusals[0].second.promised == SiteBallot{5, 2});
  bench.give(0, 1);
  bench.say(0, SiteAccept{{5, 0}, merge_of(1, {0})});
  CHECK(bench.sent<SiteRefusal>().size() == 1);
  // Of another slot it promises nothing.
  bench.say(0, SitePrepare{{50, 2}, {9, 0}});
  CHECK(bench.sent<SitePromise>().empty());
}

TEST_CASE("site core: an acceptor accepts what it holds in full, and says so in its next promise") {
  SiteBench bench = member(1, {0, 1, 2});
  bench.give(0, 1);
  const Merge merge = merge_of(1, {0, 2});
  bench.say(0, SiteAccept{{5, 0}, merge});
  CHECK(bench.sent<SiteAccepted>().empty());
  SUBCASE("a higher promise comes first") {
    bench.say(2, SitePrepare{{50, 1}, {6, 2}});
    CHECK_FALSE(bench.sent<SitePromise>().at(0).second.accepted);
    bench.give(2, 1);
    CHECK(bench.sent<SiteAccepted>().empty());
  }
  SUBCASE("the payload comes") {
    bench.give(2, 1);
    const auto accepted = bench.sent<SiteAccepted>();
    REQUIRE(accepted.size() == 1);
    CHECK(accepted[0].first == 0);
    bench.say(2, SitePrepare{{50, 1}, {6, 2}});
    const auto promise = bench.sent<SitePromise>().at(0).second;
    REQUIRE(promise.accepted);
    CHECK(promise.accepted->ballot == SiteBallot{5, 0});
    CHECK(promise.accepted->merge == merge);
  }
}

TEST_CASE("site core: a proposer proposes again what an acceptor has accepted") {
  SiteBench bench = member(0, {0, 1, 2});
  bench.wait_with(seconds(6), {1, 2}, bench.status());
  const SiteBallot ballot = bench.sent<SitePrepare>().at(0).second.ballot;
  bench.tell(SiteCore::Contributed{gift(0, 1)});
  bench.give(1, 1);
  const Merge accepted = merge_of(1, {1, 2});
  bench.say(1, SitePromise{{50, 1}, ballot, SiteVote{{0 + 1, 2}, accepted}});
  CHECK(bench.sent<SiteAccept>().empty());  // it lacks a payload, and pulls it
  SUBCASE("the payload comes") {
    bench.give(2, 1);
    CHECK(bench.sent<SiteAccept>().at(0).second.merge == accepted);
  }
  SUBCASE("the payload is gone: other promises may leave the choice free") {
    bench.wait_with(seconds(6), {1, 2}, bench.status());
    const auto prepares = bench.sent<SitePrepare>();
    REQUIRE_FALSE(prepares.empty());
    CHECK(prepares.back().second.ballot > ballot);
  }
}

TEST_CASE("site core: who takes over, and when") {
  SUBCASE("not while the proposer is heard") {
    SiteBench bench = member(1, {0, 1, 2});
    SiteStatus proposer = bench.status();
    proposer.slot = {50, 1};
    proposer.proposer = {1, 0};
    bench.wait_with(seconds(30), {0}, proposer);
    CHECK(bench.sent<SitePrepare>().empty());
    bench.wait_with(seconds(9), {2}, bench.status());
    CHECK_FALSE(bench.sent<SitePrepare>().empty());
  }
  SUBCASE("when the proposer is silent, and a silent lower site is not waited for") {
    SiteBench bench = member(2, {0, 1, 2, 3});
    SiteStatus proposer = bench.status();
    proposer.slot = {50, 1};
    proposer.proposer = {1, 0};
    bench.wait_with(seconds(5), {0, 1, 3}, proposer);
    CHECK(bench.sent<SitePrepare>().empty());
    bench.wait_with(milliseconds(3900), {1, 3}, bench.status());  // site 1 has time to begin
    CHECK(bench.sent<SitePrepare>().empty());
    bench.wait_with(milliseconds(1200), {1, 3}, bench.status());
    CHECK_FALSE(bench.sent<SitePrepare>().empty());
  }
  SUBCASE("not while bytes come from the proposer") {
    SiteBench bench = member(1, {0, 1, 2});
    SiteStatus proposer = bench.status();
    proposer.slot = {50, 1};
    proposer.proposer = {1, 0};
    bench.say(0, proposer);
    for (int i = 0; i < 20; ++i) {
      bench.tell(SiteCore::Heard{0});
      bench.wait_with(milliseconds(500), {2}, bench.status());
    }
    CHECK(bench.sent<SitePrepare>().empty());
    bench.say(0, bench.status());  // it proposes no more
    for (int i = 0; i < 20; ++i) {
      bench.tell(SiteCore::Heard{0});
      bench.wait_with(milliseconds(500), {2}, bench.status());
    }
    CHECK_FALSE(bench.sent<SitePrepare>().empty());
  }
  SUBCASE("not while a peer hears it") {
    SiteBench bench = member(1, {0, 1, 2});
    bench.tell(SiteCore::PeerDown{0});
    SiteStatus peer = bench.status();
    peer.slot = {50, 1};
    peer.proposer = {1, 0};
    peer.heard = milliseconds(700);
    bench.wait_with(seconds(30), {2}, peer);
    CHECK(bench.sent<SitePrepare>().empty());
  }
  SUBCASE("not while the proposer may wait, but when it proposes nothing for long") {
    SiteBench bench = member(1, {0, 1, 2});
    bench.tell(SiteCore::Contributed{gift(1, 1)});
    bench.give(2, 1);
    SiteStatus proposer = bench.status();
    proposer.slot = {50, 1};
    proposer.proposer = {1, 0};
    bench.wait_with(seconds(30), {0, 2}, proposer);
    CHECK(bench.sent<SitePrepare>().empty());
    bench.wait_with(seconds(10), {0, 2}, proposer);
    CHECK_FALSE(bench.sent<SitePrepare>().empty());
  }
  SUBCASE("not without a quorum in reach") {
    SiteBench bench = member(1, {0, 1, 2});
    bench.tell(SiteCore::PeerDown{0});
    bench.tell(SiteCore::PeerDown{2});
    bench.wait(seconds(30));
    CHECK_FALSE(bench.core().is_proposer());
  }
  SUBCASE("of two, the lower one goes on alone") {
    SiteBench low = member(0, {0, 1}), high = member(1, {0, 1});
    low.tell(SiteCore::PeerDown{1});
    high.tell(SiteCore::PeerDown{0});
    low.wait(seconds(30)), high.wait(seconds(30));
    CHECK(low.core().is_proposer());
    CHECK_FALSE(high.core().is_proposer());
  }
  SUBCASE("a refused proposer stands back") {
    SiteBench bench = ready_proposer();
    CHECK(bench.core().is_proposer());
    bench.tell(SiteCore::Contributed{gift(0, 1)});
    bench.give(1, 1);
    bench.give(2, 1);
    const SiteBallot ballot = bench.sent<SiteAccept>().at(0).second.ballot;
    bench.say(1, SiteRefusal{{50, 1}, ballot, {9, 2}});
    CHECK_FALSE(bench.core().is_proposer());
    bench.wait_with(seconds(6), {1, 2}, bench.status());
    CHECK(bench.sent<SitePrepare>().at(0).second.ballot == SiteBallot{10, 0});
  }
}

}  // namespace dlaunch::site_core_world
