// JobCare: looks after the workers of all hosts while they run, where the job is led: finds those
// that hang or are slow, shows their stacks, has them replaced; hurts some where --chaos asks for
// it; and says how they are to those who ask. What is done on a host is done by its NodeCare. One
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

#include "elastic/chaos.h"
#include "elastic/job_core.h"
#include "launcher/care/errands.h"
#include "launcher/care/progress_watch.h"
#include "launcher/crew.h"
#include "launcher/output/output_hub.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

class JobCare final : private ProgressWatch::Hands {
 public:
  // What it looks at must outlive it.
  JobCare(asio::io_context& loop, const Plan& plan, OutputHub& hub, Crew& crew, const JobCore& job,
          std::function<void(JobCore::Event)> feed);

  // fenced: since when the job was without a round, if it had one before.
  void begin_round(int round, int ranks, std::optional<TimePoint> fenced);
  void gone(int rank) { watch_.gone(rank); }
  // The user stops all workers (SIGTSTP), or lets them go on.
  void suspend(bool yes) { watch_.suspend(yes); }
  void lost_host(int node);
  // What a host's NodeCare says.
  void take(int node, const NodeMessage& message);
  void stop();

  // Who waits for whom, a sentence each.
  std::vector<std::string> waits() const;
  // Those that run and whose hosts answer within a second.
  // gpus: and what GPUs they use.
  void survey(bool gpus, std::function<void(const std::map<Slot, NodeWorker>&)> done);
  void dump(Slot slot, Errands::Stacks done);

 private:
  void arm_chaos();
  void on_chaos();
  void do_chaos(TimePoint now, const std::map<Slot, NodeWorker>& figures);
  std::vector<Slot> members() const;
  std::vector<Slot> slots_of(const RankSet& ranks) const;
  void take(int node, const NodeThrew& threw);
  std::string with_hosts(const std::string& sentence, const RankSet& ranks) const;

  // -- ProgressWatch::Hands
  void warn(const RankSet& ranks, const std::string& sentence) override;
  void dump(const RankSet& ranks) override;
  void replace_hung(const RankSet& ranks, const std::string& why) override;
  void replace_slow(int rank, const std::string& why) override;
  std::set<int> nodes() override;
  bool is_heard(int node) override { return crew_.is_heard(node); }
  void ask(int node, const NodeMessage& question) override { crew_.order(node, question); }

  const Plan& plan_;
  OutputHub& hub_;
  Crew& crew_;
  const JobCore& job_;
  const std::function<void(JobCore::Event)> feed_;
  ProgressWatch watch_;
  Errands errands_;
  int dumps_ = 0;  // under way
  std::vector<std::function<void()>> after_dumps_;
  std::optional<Chaos> chaos_;
  asio::steady_timer chaos_timer_;
};

}  // namespace dlaunch
