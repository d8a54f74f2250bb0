// JobCare: looks after the workers while they run: finds those that hang or are slow, shows their
// stacks, has them replaced; and hurts some where --chaos asks for it. One thread, the loop's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "elastic/chaos.h"
#include "elastic/job_core.h"
#include "launcher/output_hub.h"
#include "launcher/plan.h"
#include "launcher/processes.h"
#include "launcher/progress_watch.h"

namespace dlaunch {

class JobCare {
 public:
  // What it looks at must outlive it.
  JobCare(asio::io_context& loop, const Plan& plan, OutputHub& hub, Processes& processes,
          std::function<void(JobCore::Event)> feed);

  // fenced: since when the job was without a round, if it had one before.
  void begin_round(int ranks, std::optional<TimePoint> fenced);
  void gone(int rank) { watch_.gone(rank); }
  // A child was stopped or continued.
  void look() { watch_.look(); }
  void stop();

 private:
  ProgressWatch::Listener listener();
  void show_stacks(const RankSet& ranks);
  void replace_hung(const RankSet& ranks, const std::string& why);
  void replace_slow(int rank, const std::string& why);
  void arm_chaos();
  std::vector<Slot> slots_of(const RankSet& ranks) const;

  asio::io_context& loop_;
  const Plan& plan_;
  OutputHub& hub_;
  Processes& processes_;
  const std::function<void(JobCore::Event)> feed_;
  ProgressWatch watch_;
  int dumps_ = 0;  // under way
  std::vector<std::function<void()>> after_dumps_;
  std::optional<Chaos> chaos_;
  asio::steady_timer chaos_timer_;
};

}  // namespace dlaunch
