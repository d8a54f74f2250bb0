// HangJudge finds ranks for which the others wait in vain, and says what to do about them. Pure:
// samples in, actions out. Agents read each rank's progress from shared memory every 100 to 250 ms.
//
// Hangs are what find_hangs() says, once it has lasted for hang_timeout: ranks that have not
// entered a collective where others wait, that wait for each other in a circle, or do not come out
// of a collective all have entered. Where no rank is in any collective, a checkpoint or an
// evaluation looks the same, and hang_timeout must allow for it. Each gives a Warn after half of
// the time, `dump_time` (at most a quarter) before it is over a Dump of the culprits and of one
// that waits, and then a Replace. Motion at any time ends it; movement of data within a collective
// is motion (a smaller age).
//
// Where somebody waits for somebody a Warn may come earlier, after warn_after, and without a
// hang_timeout it is all that comes. What was warned of and ended well is as this program is:
// from then on only what takes twice as long is worth a warning.
//
// A stopped rank (SIGSTOP) is warned of at once and replaced after stop_limit, and is not taken to
// hang. Time stands still, and nothing is replaced, while any rank is traced (someone is debugging,
// and a restart may take more ranks along), while all are stopped (someone suspended the job),
// while the user has stopped the whole job (^Z: Suspended), and while a rank was not heard of for
// `silence` (whether its host lives is decided by leases). Where step() is not called for 10 s,
// this host was suspended, and all waiting begins anew.
//
// A rank is known from its first sample; who samples groups that a rank is in, sends one sample a
// group. One of whom is only known that it moves is sampled with age 0, wherever it was last.
// NewRound forgets all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "elastic/hang_finder.h"

namespace dlaunch {

struct ProgressSample {
  int rank = 0;
  std::uint64_t group = 0;  // 0: of all ranks
  std::uint64_t seq = 0;    // of the last collective entered; 0: none yet
  bool inside = false;
  std::uint8_t what = 0;  // index into kCollectiveNames, where seq > 0
  Duration age{};         // since anything of this moved
  Duration seen{};        // for how long its agent has seen it so, where that tells only now
  ProcessState state = ProcessState::running;
};

struct HangConfig {
  Duration hang_timeout = Duration::max();         // max: nothing that hangs is replaced
  Duration warn_after = Duration::max();           // max: only for what will be replaced
  Duration stop_limit = std::chrono::seconds(30);  // max: may stand for ever
  Duration dump_time = std::chrono::seconds(2);    // for stacks to be written
  Duration silence = std::chrono::seconds(2);
};

class HangJudge {
 public:
  // -- Events
  struct NewRound {};
  using Samples = std::vector<ProgressSample>;  // of one agent or of all
  struct Gone {                                 // it ended, and is nobody's peer any more
    int rank;
  };
  // The user stops all workers, or lets them go on. Neither is worth a warning.
  struct Suspended {
    bool yes;
  };
  struct Clock {};  // deadline() has passed
  using Event = std::variant<NewRound, Samples, Gone, Suspended, Clock>;

  // -- Actions, to be performed in order
  struct Warn {
    int rank;
    std::string sentence;
  };
  struct Dump {
    RankSet ranks;
  };
  struct Replace {
    RankSet ranks;
    std::string sentence;
  };
  using Action = std::variant<Warn, Dump, Replace>;

  explicit HangJudge(HangConfig config) : config_(config), warn_after_(config.warn_after) {}

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  // Those that wait for this rank, by what was sampled until now.
  RankSet waiting_for(int rank) const { return dlaunch::waiting_for(ranks_, rank); }
  // Who waits for whom, for so long already, by what was sampled until now.
  std::vector<Hang> waits(TimePoint now, Duration at_least) const;

 private:
  struct Case {
    bool warned = false;
    Duration waited{};
    std::optional<TimePoint> dumped;
    bool replaced = false;
    std::string about;
  };

  void on(TimePoint now, const NewRound& event);
  void on(TimePoint now, const Samples& event);
  void on(TimePoint now, const Gone& event);
  void on(TimePoint now, const Suspended& event);
  void on(TimePoint now, const Clock& event);

  void take(TimePoint now, const ProgressSample& sample);
  void tell_of_stops(const RankSet& before);
  void pass_time(TimePoint now);
  void tell_of_traced();
  void judge(TimePoint now);
  bool is_held(TimePoint now) const;
  std::vector<Hang> find(TimePoint now) const;
  Duration warn_after(const Hang& hang) const;
  std::string warning(const Hang& hang) const;
  void close_cases(const std::vector<Hang>& hangs);
  void pursue(TimePoint now, const Hang& hang);
  void wake_at(TimePoint time);

  const HangConfig config_;
  Duration warn_after_;
  Progress ranks_;
  std::map<Hang::Key, Case> cases_;
  std::optional<TimePoint> deadline_;
  std::optional<TimePoint> last_;  // step()
  TimePoint gone_at_{};            // the last loss
  bool traced_ = false;            // warned of
  bool suspended_ = false;
  RankSet stopped_by_user_;
  std::vector<Action> actions_;
};

}  // namespace dlaunch
