#include "launcher/lead/job_telemetry.h"

#include <utility>

#include "base/log.h"
#include "launcher/lead/monitor/step_digest.h"

namespace dlaunch {

JobTelemetry::JobTelemetry(const Plan& plan)
    : plan_(plan),
      ledger_(steady_now(), StepDigest::kBetweenHosts),
      trace_(plan.trace, plan.job_id, steady_now()),
      events_(plan, [this](const JobEvent& event) { take(event); }) {}

Result<void> JobTelemetry::open(asio::io_context& loop, Look look, bool takes_over) {
  look_ = std::move(look);
  if (!plan_.metrics.empty()) {
    auto server = MetricsServer::open(loop, plan_.metrics,
                                      [this](MetricsForm form, const MetricsServer::Done& done) {
                                        look_([this, form, done](const JobStatus& job) {
                                          counters_.take(goodput());
                                          done(render_metrics(job, counters_, form));
                                        });
                                      });
    if (!server && !takes_over) return server.error();
    if (!server) log_warn("{}; the job continues without metrics", server.error().what);
    if (server) metrics_ = std::move(*server);
    // Without this line nobody would know a port that the kernel has chosen.
    const bool chosen = plan_.metrics.ends_with(":0");
    if (metrics_)
      log_line(chosen ? LogLevel::warn : LogLevel::info, "metrics at " + metrics_->where());
  }
  if (!plan_.run_dir.empty()) {
    auto folder = RunFolder::open(loop, plan_);
    if (!folder) return folder.error();
    run_folder_ = std::move(*folder);
  }
  const std::size_t most = plan_.run_dir.empty() ? SIZE_MAX : kMostOfRunFile;
  auto log = EventLog::open(loop, plan_.events_file, plan_.job_id, most);
  if (!log) return log.error();
  log_ = std::move(*log);
  return {};
}

void JobTelemetry::take(const JobEvent& event) {
  if (const auto* hang = std::get_if<job_event::HangFinding>(&event); hang && hang->hung) {
    ledger_.hung(steady_now(), *hang->hung);
  }
  counters_.take(event);
  if (log_) log_->add(event);
}

void JobTelemetry::begins(const JobCore& job, const std::vector<std::string>& hosts,
                          const std::optional<JobRecord>& was) {
  events_.begins(job, hosts, was);
  if (!run_folder_) return;
  run_folder_->begin(hosts, {.goodput = [this] { return goodput(); },
                             .tallies =
                                 [this](const auto& done) {
                                   look_([this, done](const JobStatus& status) {
                                     done(status.size, counters_.tallies);
                                   });
                                 }});
}

void JobTelemetry::begin_round(int round, int size) {
  const TimePoint now = steady_now();
  ledger_.begin_round(now, round, size);
  if (round_ != round) end_round(now);
  round_ = round;
  trace_.begin_round(now, round, size);
  pace_.begin_round();
}

void JobTelemetry::see(const JobCore::Event& event, const JobCore& job) {
  const TimePoint now = steady_now();
  ledger_.see(now, event, job);
  trace_.see(now, event, job);
  events_.fed(now, event, job);
}

void JobTelemetry::worker_ended(Slot slot, const WorkerEnd& end, const JobCore& job) {
  ledger_.ended(slot, end, job);
  trace_.ended(end);
}

void JobTelemetry::take(int node, const std::string& host, Duration clock_error,
                        const NodeMessage& message) {
  ledger_.take(steady_now(), node, host, message);
  trace_.take(node, host, clock_error, message);
  if (const auto* said = std::get_if<NodeRunProgress>(&message)) {
    pace_.take(said->rank, said->progress);
  }
}

void JobTelemetry::measured(const StepTimes& step) {
  trace_.slow_links(steady_now(), ledger_.measured(step));
  counters_.take(step);
}

void JobTelemetry::finish() {
  const TimePoint now = steady_now();
  ledger_.finish(now);
  goodput_.reset();
  end_round(now);
  trace_.finish(now);
}

const Goodput& JobTelemetry::goodput() {
  constexpr Duration kFresh = std::chrono::milliseconds(100);
  const TimePoint now = steady_now();
  if (!goodput_ || now - goodput_at_ >= kFresh) {
    goodput_ = ledger_.at(now);
    goodput_at_ = now;
  }
  return *goodput_;
}

void JobTelemetry::end_round(TimePoint now) {
  if (round_ != 0) events_.happened(job_event::GoodputSums{round_, ledger_.at(now).summary()});
}

void JobTelemetry::close(std::function<bool()> others_owe, std::function<void()> then) {
  if (!log_) return then();
  if (run_folder_) run_folder_->end([this] { log_->close_if_done(); });
  const auto owes_lines = [this] { return run_folder_ && !run_folder_->written(); };
  log_->close(
      [owes_lines, others_owe = std::move(others_owe)] { return owes_lines() || others_owe(); },
      [this, owes_lines, then = std::move(then)] {
        if (owes_lines())
          log_warn("--run-dir {} does not take the last lines: they may be lost", plan_.run_dir);
        then();
      });
}

}  // namespace dlaunch
