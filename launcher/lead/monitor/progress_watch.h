// ProgressWatch: collects the progress of all workers from their hosts and feeds HangJudge and
// StragglerJudge: every 200 ms with a hang time-out, else ten times in a window of the stragglers,
// and at once when a worker was stopped or continued. It asks for the times of collectives again
// only once all hosts have answered, or after some time. If of a program with a hang time-out only
// output and CPU time are seen, it says so once, after a minute or half of the time-out. It runs at
// the leader. Pure: it acts through
// Effects.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/hang.h"
#include "elastic/straggler.h"
#include "launcher/lead/events/job_event.h"
#include "launcher/lead/monitor/step_digest.h"
#include "launcher/wire/monitor_message.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class ProgressWatch {
 public:
  class Effects {
   public:
    virtual ~Effects() = default;
    virtual TimePoint now() = 0;
    // ranks: the subject of the sentence.
    virtual void warn(const RankSet& ranks, const std::string& sentence) = 0;
    virtual void dump(const RankSet& ranks) = 0;
    virtual void replace_hung(const HangJudge::Replace& hang) = 0;
    // Looks at the stacks of all ranks. Replaces the quiet ones if this and the last look show that
    // the busy ones wait.
    virtual void replace_if_others_wait(const HangJudge::Check& check) = 0;
    // leaves: its host, as in JobCore::Replace.
    virtual void replace_slow(int rank, const std::string& why, bool leaves) = 0;
    // For outside programs, before the action itself.
    virtual void happened(const JobEvent& event) = 0;
    virtual void measured(const StepTimes& step) = 0;
    // nodes(): those that have ranks now. is_heard(): the node was heard within a second. ask():
    // sends it a question; the answer may come at once.
    virtual std::set<int> nodes() = 0;
    virtual bool is_heard(int node) = 0;
    // The ranks do not wait for each other: one that has started again has a later round.
    virtual bool are_tasks() = 0;
    virtual void ask(int node, const NodeMessage& question) = 0;
  };
  struct Options {
    Duration hang_timeout = Duration::max();  // max: hung workers are not replaced
    Duration hang_warning = Duration::max();  // max: warn only about workers that will be replaced
    StragglerJudgeConfig stragglers;
  };
  // effects must outlive it.
  ProgressWatch(const Options& options, Effects& effects);

  std::optional<TimePoint> deadline() const { return next_look_; }
  void on_clock();  // deadline() has passed
  // recovered: how long the job was without a round.
  void new_round(int round, const StragglerJudge::NewRound& sizes,
                 std::optional<Duration> recovered);
  void gone(int rank);
  // The user stops all workers (SIGTSTP), or lets them go on.
  void suspend(bool yes) { feed(HangJudge::Event(HangJudge::Suspended{yes})); }
  void lost(int node);
  void take(int node, const NodeSeen& seen);
  void take(int node, const NodeSpans& spans);
  void take(int node, const NodeTimes& times);
  // The pid of the rank's worker in its host's last message; 0: not known.
  int pid_of(int rank) const;
  // The waits that have lasted at least so long. Hosts report a rank only once it has stood still
  // for report_still_after(), so that a shorter wait is not known yet.
  std::vector<Hang> waits(Duration at_least) const {
    return hangs_.waits(effects_.now(), at_least);
  }
  // The ranks that wait in a collective for this rank; empty also if that is not known.
  RankSet waiting_for(int rank) const { return hangs_.waiting_for(rank); }
  // Ends the watch.
  void stop();

 private:
  struct Known {  // of a rank
    int node = 0;
    TimePoint told{};
    NodeRank rank;
  };
  void look();  // for stopped and for hung workers
  bool is_watched(const Known& known);
  void tell_what_is_seen();
  void look_for_slow();
  void add_samples(TimePoint now, const Known& known, HangJudge::Samples& samples) const;
  void feed(const HangJudge::Event& event);
  void feed(const StragglerJudge::Event& event);

  Effects& effects_;
  const bool looks_for_hangs_;
  const bool looks_for_slow_;
  const Duration interval_;
  const Duration patience_;
  HangJudge hangs_;
  StragglerJudge stragglers_;
  int round_ = 0;
  std::map<int, Known> ranks_;
  StepDigest digest_;
  TimePoint looked_{};  // the last look
  std::optional<TimePoint> next_look_;
  std::optional<TimePoint> tell_at_;  // what can be seen of the program
  bool stopped_ = false;
};

}  // namespace dlaunch
