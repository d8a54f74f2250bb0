// JobMonitor: watches the workers of all hosts, in the process that leads the job. It finds workers
// that hang or are slow, prints their stacks, has them replaced, injects the faults that --chaos
// asks for, and answers questions about the workers' state. On each host a NodeMonitor does the
// work. Pure: it takes events, and acts through Effects and NodeMembership.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/chaos.h"
#include "elastic/job_core.h"
#include "launcher/lead/control/job_status.h"
#include "launcher/lead/membership/node_membership.h"
#include "launcher/lead/monitor/hang_evidence.h"
#include "launcher/lead/monitor/progress_watch.h"
#include "launcher/lead/monitor/rank_tails.h"
#include "launcher/lead/monitor/requests.h"
#include "launcher/lead/monitor/stack_hold.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

class JobMonitor final : private ProgressWatch::Effects {
 public:
  class Effects {
   public:
    virtual ~Effects() = default;
    virtual TimePoint now() = 0;
    // Call on_clock() then. It replaces an earlier call; kNever: it is not necessary.
    virtual void wake_monitor_at(TimePoint due) = 0;
    virtual void feed(const JobCore::Event& event) = 0;
    virtual void warn(const std::string& words) = 0;
    virtual void show(const std::string& line) = 0;  // among the workers' output
    // A worker has ended, and the evidence is safe: the job may learn of it.
    virtual void ended(Slot slot, const WorkerEnd& end) = 0;
    // What that rank was doing when another one gave up waiting.
    virtual void note_stacks(int rank, const std::vector<std::string>& lines) = 0;
    // The ranks for which others waited then, by NCCL's counts.
    virtual void note_late_in_nccl(const NcclVerdict& late) = 0;
    virtual void happened(const JobEvent& event) = 0;
    virtual void measured(const StepTimes& step) = 0;
  };
  // All referenced objects must outlive it.
  JobMonitor(const Plan& plan, NodeMembership& membership, const JobCore& job, Effects& effects);

  // fenced: since when the job had no round, if it had one before.
  void begin_round(int round, int ranks, std::optional<TimePoint> fenced);
  // A worker has ended. If it may only have given up waiting for another one, the stacks of the
  // others come first (StackHold); then Effects::ended().
  void ended(Slot slot, const WorkerEnd& end);
  // Another event is about to reach the job: held ends come before it.
  void let_ends_pass() { act(hold_.step(now(), StackHold::Hurry{})); }
  // The user stops all workers (SIGTSTP), or lets them go on.
  void suspend(bool yes) { watch_.suspend(yes); }
  void lost_host(int node);
  // A message of a host's NodeMonitor.
  void take(int node, const NodeMessage& message);
  void on_clock();
  void stop();

  // One sentence for each worker that others have waited for long enough to say it when the job
  // ends.
  std::vector<std::string> waits() const;
  // As far as the hosts have reported it; see ProgressWatch::waits().
  std::vector<LateRanks> late() const;
  // The running workers whose hosts answer within a second. gpus: also the GPUs that they use.
  void survey(bool gpus, std::function<void(const std::map<Slot, NodeWorker>&)> done);
  void dump(Slot slot, MonitorRequests::Stacks done);
  // The last lines of a rank's output, as RankTails.
  void tail(int rank, std::optional<std::uint64_t> after, const RankTails::Reply& reply);
  bool owes_tail() { return tails_.owes_last(now()); }

 private:
  void arm();
  void act(const std::vector<StackHold::Action>& actions);
  void on(const StackHold::TakeStacks& take);
  void on(const StackHold::PassOn& end) { effects_.ended(end.slot, end.end); }
  void on_chaos();
  void do_chaos(const std::map<Slot, NodeWorker>& figures);
  std::vector<Slot> members() const;
  using EachStack = std::function<void(Slot slot, int pid, const std::vector<std::string>& lines)>;
  void collect(const RankSet& ranks, const EachStack& each,
               const std::function<void(const HangEvidence&)>& done);
  void show_stack(Slot slot, int pid, const std::vector<std::string>& lines);
  void call_hung(const RankSet& ranks, const std::string& why, TimePoint since);
  std::vector<Slot> slots_of(const RankSet& ranks) const;
  Slot slot_of(int rank) const;
  void ask_tail(Slot slot, Duration lasts, bool again);
  void on(int node, const NodeSeen& seen) { watch_.take(node, seen); }
  void on(int node, const NodeSpans& spans) { watch_.take(node, spans); }
  void on(int node, const NodeTimes& times) { watch_.take(node, times); }
  void on(int node, const NodeStacks& stacks) { requests_.take(node, stacks); }
  void on(int node, const NodeRecorded& recorded) { requests_.take(node, recorded); }
  void on(int node, const NodeWorkers& workers) { requests_.take(node, workers); }
  void on(int, const NodeBooks&) {}  // JobTelemetry takes these
  void on(int, const NodeTrace&) {}
  void on(int, const NodeRunProgress&) {}
  void on(int node, const NodeOutput& output);
  void on(int node, const NodeThrew& threw);
  void on(int node, const NodeGaveUp& gave_up);
  std::vector<Slot> others_that_wait(Slot slot) const;
  std::string with_hosts(const std::string& sentence, const RankSet& ranks) const;
  std::string wait_in_words(const Hang& wait) const;

  // -- ProgressWatch::Effects
  TimePoint now() override { return effects_.now(); }
  void warn(const RankSet& ranks, const std::string& sentence) override;
  void dump(const RankSet& ranks) override;
  void replace_hung(const HangJudge::Replace& hang) override;
  void replace_if_others_wait(const HangJudge::Check& check) override;
  void replace_slow(int rank, const std::string& why, bool leaves) override;
  void happened(const JobEvent& event) override { effects_.happened(event); }
  void measured(const StepTimes& step) override { effects_.measured(step); }
  std::set<int> nodes() override;
  bool is_heard(int node) override { return membership_.is_heard(node); }
  bool are_tasks() override { return job_.are_tasks(); }
  void ask(int node, const NodeMessage& question) override { membership_.order(node, question); }

  const Plan& plan_;
  NodeMembership& membership_;
  const JobCore& job_;
  Effects& effects_;
  ProgressWatch watch_;
  MonitorRequests requests_;
  RankTails tails_;
  StackHold hold_;
  int dumps_ = 0;          // under way
  HangEvidence evidence_;  // of the last dump
  std::vector<std::function<void()>> after_dumps_;
  struct QuietLook {
    RankSet quiet;
    std::map<int, std::string> waits;  // of the busy ranks
    bool operator==(const QuietLook&) const = default;
  };
  std::optional<QuietLook> last_look_;
  bool looks_at_stacks_ = false;  // for the next one
  std::map<Slot, int> ranks_;     // of the members, as the live round numbers them
  std::optional<Chaos> chaos_;
  bool chaos_looks_ = false;  // its victims are being looked at
};

}  // namespace dlaunch
