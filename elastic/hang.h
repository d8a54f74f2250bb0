// HangJudge finds ranks for which the others wait in vain, and decides what to do about them. Pure:
// samples in, actions out. Agents read each rank's progress from shared memory every 100 to 250 ms.
//
// A hang is what find_hangs() finds, once it has lasted for hang_timeout: ranks that have not
// entered a collective in which others wait, ranks that wait for each other in a circle, or ranks
// that do not come out of a collective that all have entered. If no rank is in any collective, a
// checkpoint or an evaluation looks the same, and hang_timeout must allow for it. A rank that sends
// heartbeats hangs when it sends no more, and moves with each of them. Ranks without libdlring and
// without heartbeats hang if none of them writes output or uses CPU time. Each hang gives a Warn
// after half of hang_timeout, a Dump of the culprits and of one waiting rank `dump_time` (at most a
// quarter) before the end, and then a Replace. Motion at any time ends it; movement of data within
// a collective is motion (a smaller age).
//
// If some of these ranks are quiet and others use CPU time, those may wait in a loop for the quiet
// ones, or compute while the quiet ones wait for them. Only stacks tell: a Check comes after three
// quarters of hang_timeout and one at its end, and so on after each hang_timeout.
//
// If a rank waits for another, a Warn may come earlier, after warn_after; without a hang_timeout
// that is the only action. If a case with a warning ends well, the program is just like that: from
// then on only a wait of twice that length gives a warning.
//
// A stopped rank (SIGSTOP) gives a Warn at once and a Replace after stop_limit, and does not count
// as hanging. Time stands still, and no rank is replaced, while any rank is traced (a debugger is
// attached, and a restart may take more ranks along), while all are stopped (the job is suspended),
// while the user has stopped the whole job (^Z: Suspended), and while a rank has sent no sample for
// `silence` (leases decide whether its host lives). If 10 s pass without a step(), this host was
// suspended, and all waits start again from zero.
//
// A rank is known from its first sample. An agent that samples groups sends one sample for each
// group of a rank. A rank that is only known to move gets a sample with age 0, in its last
// position. NewRound clears everything.
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
  Duration seen{};        // how long its agent has seen it so, if the agent reports that only now
  std::optional<Duration> beat = {};  // since the rank's last heartbeat; nullopt: it sends none
  // Since it last wrote output or used CPU time, if there is no better sign of it.
  std::optional<Duration> quiet = {};
  ProcessState state = ProcessState::running;
};

struct HangConfig {
  Duration hang_timeout = Duration::max();         // max: nothing that hangs is replaced
  Duration warn_after = Duration::max();           // max: only for what will be replaced
  Duration stop_limit = std::chrono::seconds(30);  // max: may stand for ever
  Duration dump_time = std::chrono::seconds(2);    // for writing stacks
  Duration silence = std::chrono::seconds(2);
};

// How long a worker stands still before its host reports it to HangJudge; max: never. Warnings come
// after half of the time-out.
Duration report_still_after(Duration hang_timeout, Duration hang_warning);

class HangJudge {
 public:
  // -- Events
  struct NewRound {};
  using Samples = std::vector<ProgressSample>;  // of one agent or of all
  struct Gone {                                 // its process ended, and no rank waits for it
    int rank;
    // They have waited for it, or will hear of its end. Otherwise a rank without heartbeats counts
    // from now on as if none had ended.
    bool concerns_others = true;
  };
  // The user stops all workers, or continues them. Neither gives a warning.
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
    Duration hung{};  // until now; it goes on until their processes have ended
  };
  // Replace the quiet ranks if the stacks of the busy ones show in two Checks that they wait.
  struct Check {
    RankSet quiet, busy;
    std::string sentence;
    Duration hung{};
  };
  using Action = std::variant<Warn, Dump, Replace, Check>;

  explicit HangJudge(HangConfig config) : config_(config), warn_after_(config.warn_after) {}

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  // The ranks that wait for this one, by the samples so far.
  RankSet waiting_for(int rank) const { return dlaunch::waiting_for(ranks_, rank); }
  // Which ranks have waited at least so long, and for which, by the samples so far.
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

  void leave_out_of_cases(int rank);
  void take(TimePoint now, const ProgressSample& sample);
  void take_sign(TimePoint now, bool stopped, std::optional<Duration> age,
                 std::optional<TimePoint>& sign) const;
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
  void check(TimePoint now, const Hang& hang);
  void end_checks();
  void wake_at(TimePoint time);

  const HangConfig config_;
  Duration warn_after_;
  Progress ranks_;
  std::map<Hang::Key, Case> cases_;
  std::optional<TimePoint> deadline_;
  std::optional<TimePoint> last_;     // step()
  std::optional<TimePoint> checked_;  // the last Check
  bool confirms_ = false;             // the next one is a second one
  TimePoint gone_at_{};               // the last loss
  bool traced_ = false;               // the warning was given
  bool suspended_ = false;
  RankSet stopped_by_user_;
  std::vector<Action> actions_;
};

}  // namespace dlaunch
