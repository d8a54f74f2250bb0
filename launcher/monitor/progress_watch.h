// ProgressWatch: how far all workers of the job have come, as their hosts tell, and what HangJudge
// and StragglerJudge make of it: every 200 ms with a hang time-out, ten times in a window of the
// stragglers without, and at once when a worker was stopped or continued. Where the job is led. One
// thread, the loop's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "elastic/hang.h"
#include "elastic/straggler.h"
#include "launcher/hosts/monitor_message.h"
#include "launcher/hosts/node_message.h"
#include "launcher/monitor/step_digest.h"

namespace dlaunch {

class ProgressWatch {
 public:
  class Effects {
   public:
    virtual ~Effects() = default;
    // ranks: whom it is about.
    virtual void warn(const RankSet& ranks, const std::string& sentence) = 0;
    virtual void dump(const RankSet& ranks) = 0;
    virtual void replace_hung(const RankSet& ranks, const std::string& sentence) = 0;
    virtual void replace_slow(int rank, const std::string& why) = 0;
    // The nodes that have ranks now; whether one was heard of within a second; a question to it,
    // which may be answered at once.
    virtual std::set<int> nodes() = 0;
    virtual bool is_heard(int node) = 0;
    virtual void ask(int node, const NodeMessage& question) = 0;
  };
  struct Options {
    Duration hang_timeout = Duration::max();  // max: nothing that hangs is replaced
    Duration hang_warning = Duration::max();  // max: only what will be replaced is warned of
    StragglerJudgeConfig stragglers;
  };
  // effects must outlive it.
  ProgressWatch(asio::io_context& loop, const Options& options, Effects& effects);

  // For how long a worker stands still until its host is to tell of it; max: it never is.
  static Duration still_after(Duration hang_timeout, Duration hang_warning);

  // recovered: how long the job was without one.
  void new_round(int round, const StragglerJudge::NewRound& sizes,
                 std::optional<Duration> recovered);
  void gone(int rank);
  // The user stops all workers (SIGTSTP), or lets them go on.
  void suspend(bool yes) { feed(HangJudge::Event(HangJudge::Suspended{yes})); }
  void lost(int node);
  void take(int node, const NodeSeen& seen);
  void take(int node, const NodeSpans& spans);
  void take(int node, const NodeTimes& times);
  // Of the worker of that rank, as its host told last; 0: not known.
  int pid_of(int rank) const;
  // Who waits for whom, and has done for long enough to be told of where the job ends.
  std::vector<Hang> waits() const;
  // Those that wait in a collective for this rank; empty also where that is not known.
  RankSet waiting_for(int rank) const { return hangs_.waiting_for(rank); }
  // Nobody is watched any more.
  void stop();

 private:
  struct Known {  // of a rank
    int node = 0;
    TimePoint told{};
    NodeRank rank;
  };
  void arm();
  void look();  // at who was stopped, and who hangs
  void look_for_slow();
  void add_samples(TimePoint now, const Known& known, HangJudge::Samples& samples) const;
  void feed(const HangJudge::Event& event);
  void feed(const StragglerJudge::Event& event);

  Effects& effects_;
  const bool looks_for_hangs_;
  const bool looks_for_slow_;
  const Duration interval_;
  HangJudge hangs_;
  StragglerJudge stragglers_;
  int round_ = 0;
  std::map<int, Known> ranks_;
  StepDigest digest_;
  asio::steady_timer timer_;
  bool stopped_ = false;
};

}  // namespace dlaunch
