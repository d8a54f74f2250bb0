// A federation of sites in virtual time: product cores, modelled connections, trainers and states.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "ring/sites/site_core.h"
#include "tests/sim/random.h"
#include "tests/sim/sites/checker.h"

namespace dlaunch::sim {

enum class SiteBug {
  none,
  half_quorum,        // exactly half of the members go on without the lowest one
  forgotten_promise,  // an acceptor forgets what it promised
  early_accept,       // it accepts without the payloads
  ignored_vote,       // a proposer ignores that an acceptor has accepted another merge
  kept_membership,    // a restarted site comes back as the old member
  no_consent,         // a founder does not wait for the others
  no_take_over,       // no site replaces a proposer that is gone
  one_source,         // a payload is pulled from its origin alone
  lost_source,        // a site waits for a state though its source is gone
};
inline constexpr int kSiteBugs = 10;
const char* to_string(SiteBug bug);

struct SiteOutcome {
  std::string wrong;       // "": no rule is broken
  std::uint64_t hash = 0;  // of all that happened
  long merges = 0, foundings = 0, kills = 0, messages = 0;
};

class Federation {
 public:
  Federation(std::uint64_t seed, SiteBug bug, bool trace);
  ~Federation();
  SiteOutcome run();

 private:
  struct Site;
  struct Line;
  struct Letter;
  enum class Victim { none, killed, cut_off, pair_cut };

  // Time.
  void at(TimePoint when, std::function<void()> happen);
  void in(Duration delay, std::function<void()> happen) { at(now_ + delay, std::move(happen)); }
  void run_until(TimePoint end, const std::function<bool()>& enough);
  Duration delay() { return random_.up_to(slowest_) + std::chrono::milliseconds(1); }

  // Lines and connections.
  Line& line(int a, int b);
  bool cut(int from, int to) const { return cuts_.contains({from, to}); }
  void try_connect(int a, int b);
  void send(int from, int to, std::shared_ptr<const SiteMessage> message);
  void deliver(int from, int to, std::uint64_t id, std::shared_ptr<const SiteMessage> message);
  void hand_over(int from, int to, const Letter& letter);
  void close(int here, int there);
  void watch(int here, int there, std::uint64_t id);
  void heal(int from, int to);
  void heal_all();

  // Sites.
  Site& site(int number) { return *sites_[static_cast<std::size_t>(number)]; }
  void start(int number);
  void kill(int number);
  void step(int number, const SiteCore::Event& event);
  void later(int number, Duration delay, std::function<void()> happen);  // in the same life
  void wake(int number);
  void take_block(int number, int from, const SiteBlock& block);
  void fail_state(int number, int from, std::uint64_t id);
  void new_state(int number, const MergeId& id, std::uint64_t hash);
  void contribute(int number, const MergeId& id);
  void do_(int number, const SiteCore::Send& action);
  void do_(int number, const SiteCore::Serve& action);
  void do_(int number, const SiteCore::Receive& action);
  void do_(int number, const SiteCore::Check& action);
  void do_(int number, const SiteCore::Forget& action);
  void do_(int number, const SiteCore::Apply& action);
  void do_(int number, const SiteCore::Adopt& action);
  void do_(int number, const SiteCore::FetchState& action);
  void do_(int number, const SiteCore::Missing& action);
  void do_(int number, const SiteCore::GiveUp& action);
  void do_(int number, const SiteCore::Mismatch& action);

  // The course of a run.
  void chaos();
  void one_fault();
  void fail_somehow();
  void ambush(int proposer);
  void repair();
  void must_go_on(const char* when, Duration limit);
  bool all_are_members() const;
  void note(const std::string& what);

  Random random_;
  const SiteBug bug_;
  const bool trace_;
  SiteCoreConfig config_;
  bool ambush_ = false;
  Duration silence_{}, slowest_{}, compute_{};
  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  std::uint64_t happenings_ = 0, connections_ = 0, lives_ = 0;
  struct Happening {
    TimePoint when;
    std::uint64_t number;
    std::function<void()> happen;
    bool operator<(const Happening& other) const {
      return std::pair(other.when, other.number) < std::pair(when, number);
    }
  };
  std::priority_queue<Happening> to_come_;
  std::vector<std::unique_ptr<Site>> sites_;
  std::map<std::pair<int, int>, Line> lines_;
  std::set<std::pair<int, int>> cuts_;  // (from, to)
  SiteChecker checker_;
  SiteOutcome outcome_;
};

}  // namespace dlaunch::sim
