#include "ring/sites/site_core.h"

#include <algorithm>
#include <utility>

#include <doctest/doctest.h>

namespace dlaunch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

SiteMember life(int site) { return {site, 100 + static_cast<std::uint64_t>(site)}; }

Contribution gift(int site, std::uint64_t number) {
  return {life(site), {50, number}, 8, 1000 * number + static_cast<std::uint64_t>(site)};
}

// Epoch 50 begins with state 0, whose hash is 7.
Merge first_founding(std::initializer_list<int> sites) {
  Merge merge{
      .id = {50, 0}, .members = {}, .contributions = {}, .order = {}, .founding = true, .hash = 7};
  for (const int site : sites) {
    merge.members.push_back(life(site));
    merge.order.push_back(site);
  }
  return merge;
}

Merge merge_of(std::uint64_t number, std::initializer_list<int> sites) {
  Merge merge = first_founding(sites);
  merge.id.number = number;
  merge.founding = false;
  merge.hash = 0;
  for (const int site : sites) merge.contributions.push_back(gift(site, number));
  return merge;
}

// One core, and peers whose messages the test writes.
class SiteBench {
 public:
  SiteBench(int me, int sites, MergeId held = {}, std::uint64_t hash = 7)
      : core_({.sites = sites,
               .me = life(me),
               .held = held,
               .hash = hash,
               .least_epoch = 50,
               .wait = std::chrono::minutes(5),
               .payloads = {}}) {
    tell(SiteCore::Clock{});
  }

  void tell(const SiteCore::Event& event) {
    for (auto& action : core_.step(now_, event)) actions_.push_back(std::move(action));
  }
  void say(int from, SiteMessage message) { tell(SiteCore::Received{from, std::move(message)}); }
  // A peer of that state, which knows the core's newest merge unless `decided` says otherwise.
  SiteStatus status(std::optional<MergeId> held = {}, std::optional<MergeId> decided = {}) {
    SiteStatus it;
    it.decided = decided.value_or(core_.decided());
    it.held = held.value_or(core_.held());
    it.hash = core_.hash();
    return it;
  }
  void meet(int site, std::optional<MergeId> held = {}) {
    tell(SiteCore::PeerUp{life(site)});
    say(site, status(held));
  }
  // The peer offers its contribution, and the core gets all of it.
  void give(int site, std::uint64_t number) {
    SiteStatus it = status();
    it.whole = {gift(site, number)};
    say(site, it);
    bring(site, number);
  }
  void bring(int site, std::uint64_t number) {
    if (!core_.expects(gift(site, number), 0, 8)) return;
    tell(SiteCore::Arrived{site, gift(site, number), 0, 8});
    tell(SiteCore::Checked{gift(site, number), true});
  }
  void wait(Duration time) {
    for (const TimePoint end = now_ + time; now_ < end;) {
      now_ = std::min(end, std::max(*core_.deadline(), now_ + milliseconds(1)));
      tell(SiteCore::Clock{});
    }
  }
  // As wait(), while these peers send heartbeats.
  void wait_with(Duration time, std::initializer_list<int> peers, const SiteStatus& their) {
    for (const TimePoint end = now_ + time; now_ < end;) {
      for (const int peer : peers) say(peer, their);
      wait(std::min<Duration>(end - now_, milliseconds(500)));
    }
  }

  // The actions of this kind since the last call, and forgets all others.
  template <class Action>
  std::vector<Action> take() {
    std::vector<Action> all;
    for (auto& it : actions_) {
      if (auto* action = std::get_if<Action>(&it)) all.push_back(std::move(*action));
    }
    actions_.clear();
    return all;
  }
  // The messages of this kind, by receiver.
  template <class Message>
  std::vector<std::pair<int, Message>> sent() {
    std::vector<std::pair<int, Message>> all;
    for (auto& it : take<SiteCore::Send>()) {
      if (auto* message = std::get_if<Message>(&it.message)) all.emplace_back(it.to, *message);
    }
    return all;
  }
  SiteCore& core() { return core_; }

 private:
  SiteCore core_;
  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  std::vector<SiteCore::Action> actions_;
};

// A member of the first founding, connected to all others.
SiteBench member(int me, std::initializer_list<int> sites) {
  SiteBench bench(me, static_cast<int>(sites.size()));
  for (const int site : sites) {
    if (site == me) continue;
    bench.tell(SiteCore::PeerUp{life(site)});
    // None founds: the others know the epoch already.
    bench.say(site, SiteDecided{first_founding(sites)});
    bench.say(site, bench.status());
  }
  (void)bench.take<SiteCore::Send>();
  return bench;
}

// Site 0 of three, prepared as the proposer of merge 1.
SiteBench ready_proposer() {
  SiteBench bench = member(0, {0, 1, 2});
  bench.wait_with(seconds(6), {1, 2}, bench.status());
  const auto prepares = bench.sent<SitePrepare>();
  REQUIRE_FALSE(prepares.empty());
  bench.say(1, SitePromise{{50, 1}, prepares[0].second.ballot, {}});
  (void)bench.take<SiteCore::Send>();
  return bench;
}

}  // namespace

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
  bench.wait_with(seconds(30), {2}, bench.status());
  CHECK(bench.sent<SiteAccept>().empty());  // one of three is no quorum, however long it takes
  bench.tell(SiteCore::Contributed{gift(0, 1)});
  SUBCASE("the third comes") {
    bench.give(2, 1);
    const auto accepts = bench.sent<SiteAccept>();
    REQUIRE(accepts.size() == 2);
    CHECK(accepts[0].second.merge.contributions.size() == 3);
  }
  SUBCASE("grace is over") {
    bench.wait_with(milliseconds(9900), {2}, bench.status());
    CHECK(bench.sent<SiteAccept>().empty());
    bench.wait_with(milliseconds(200), {2}, bench.status());
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

}  // namespace dlaunch
