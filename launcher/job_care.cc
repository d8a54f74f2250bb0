#include "launcher/job_care.h"

#include <signal.h>

#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "launcher/report.h"
#include "launcher/stacks.h"

namespace dlaunch {
namespace {

ProgressWatch::Options watch_options(const Plan& plan) {
  ProgressWatch::Options options{.hang_timeout = plan.hang_timeout, .stragglers = {}};
  // The workers of one host are all it sees.
  options.stragglers.mode = plan.nodes.several() ? StragglerMode::off : plan.straggler;
  options.stragglers.detection.ratio = plan.straggler_ratio;
  options.stragglers.detection.window_time = plan.straggler_window;
  return options;
}

}  // namespace

JobCare::JobCare(asio::io_context& loop, const Plan& plan, OutputHub& hub, Processes& processes,
                 std::function<void(JobCore::Event)> feed)
    : loop_(loop),
      plan_(plan),
      hub_(hub),
      processes_(processes),
      feed_(std::move(feed)),
      watch_(loop, processes, watch_options(plan), listener()),
      chaos_timer_(loop) {
  if (!plan.chaos) return;
  chaos_.emplace(steady_now(), *plan.chaos);
  arm_chaos();
}

ProgressWatch::Listener JobCare::listener() {
  return {
      .warn = [](const std::string& what) { log_warn("{}", what); },
      .dump = [this](const RankSet& ranks) { show_stacks(ranks); },
      .replace = [this](const RankSet& ranks, const std::string& why) { replace_hung(ranks, why); },
      .replace_slow = [this](int rank, const std::string& why) { replace_slow(rank, why); },
  };
}

void JobCare::begin_round(int ranks, std::optional<TimePoint> fenced) {
  if (chaos_) {
    chaos_->new_round(steady_now());
    arm_chaos();
  }
  std::optional<Duration> recovered;
  if (fenced) recovered = steady_now() - *fenced;
  watch_.new_round(
      {.ranks = ranks, .nodes = 1, .min_ranks = plan_.min_nproc, .spares = plan_.spares},
      recovered);
}

void JobCare::stop() {
  watch_.stop();
  after_dumps_.clear();
  chaos_.reset();
  chaos_timer_.cancel();
}

std::vector<Slot> JobCare::slots_of(const RankSet& ranks) const {
  auto found = processes_.members();
  std::erase_if(found, [&](Slot slot) { return !ranks.contains(processes_.place(slot).rank); });
  return found;
}

void JobCare::show_stacks(const RankSet& ranks) {
  for (const Slot slot : slots_of(ranks)) {
    const int rank = processes_.place(slot).rank;
    const pid_t pid = processes_.program_pid(slot);
    ++dumps_;
    dump_stacks(loop_, pid, [this, rank, pid](const std::vector<std::string>& lines) {
      hub_.own_line(fmt::format("dlaunch: stacks of rank {} (pid {}):", rank, pid));
      for (const auto& line : lines) hub_.own_line("dlaunch:   " + line);
      if (--dumps_ > 0) return;
      for (const auto& replace : std::exchange(after_dumps_, {})) replace();
    });
  }
}

void JobCare::replace_hung(const RankSet& ranks, const std::string& why) {
  for (const Slot slot : slots_of(ranks)) {
    const auto replace = [this, slot, why, pid = processes_.program_pid(slot)] {
      if (!processes_.running(slot) || processes_.program_pid(slot) != pid) return;
      processes_.call_hung(slot, why);
      feed_(JobCore::Replace{slot, FailureKind::hung});
    };
    // Its end would cut short the look at its stacks, and the job's end the one at another's.
    dumps_ > 0 ? after_dumps_.push_back(replace) : replace();
  }
}

void JobCare::replace_slow(int rank, const std::string& why) {
  for (const Slot slot : slots_of({rank})) {
    log_warn("{}; starting it again", why);
    feed_(JobCore::Replace{slot, FailureKind::evicted});
  }
}

void JobCare::arm_chaos() {
  chaos_timer_.expires_at(chaos_->deadline());
  chaos_timer_.async_wait([this](asio::error_code ec) {
    if (ec || !chaos_) return;
    for (const auto& deed : chaos_->step(steady_now(), processes_.members())) {
      const pid_t pid = processes_.program_pid(deed.victim);
      log_info("chaos: {} to rank {} (pid {})", describe_signal(deed.signal),
               processes_.place(deed.victim).rank, pid);
      ::kill(pid, deed.signal);
    }
    arm_chaos();
  });
}

}  // namespace dlaunch
