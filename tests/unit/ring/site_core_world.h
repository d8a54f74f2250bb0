// SiteCore alone, with peers whose messages the test writes.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "ring/sites/site_core.h"

namespace dlaunch::site_core_world {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline SiteMember life(int site) { return {site, 100 + static_cast<std::uint64_t>(site)}; }

inline Contribution gift(int site, std::uint64_t number) {
  return {life(site), {50, number}, 8, 1000 * number + static_cast<std::uint64_t>(site)};
}

// Epoch 50 begins with state 0, whose hash is 7.
inline Merge first_founding(std::initializer_list<int> sites) {
  Merge merge{
      .id = {50, 0}, .members = {}, .contributions = {}, .order = {}, .founding = true, .hash = 7};
  for (const int site : sites) {
    merge.members.push_back(life(site));
    merge.order.push_back(site);
  }
  return merge;
}

inline Merge merge_of(std::uint64_t number, std::initializer_list<int> sites) {
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
  // This site's process stands still for so long.
  void sleep(Duration time) {
    now_ += time;
    tell(SiteCore::Clock{});
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
inline SiteBench member(int me, std::initializer_list<int> sites) {
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
inline SiteBench ready_proposer() {
  SiteBench bench = member(0, {0, 1, 2});
  bench.wait_with(seconds(6), {1, 2}, bench.status());
  const auto prepares = bench.sent<SitePrepare>();
  REQUIRE_FALSE(prepares.empty());
  bench.say(1, SitePromise{{50, 1}, prepares[0].second.ballot, {}});
  (void)bench.take<SiteCore::Send>();
  return bench;
}

}  // namespace dlaunch::site_core_world
