// JobTelemetry: all that is written down about a job while it runs: its events (--events), its
// metrics (--metrics), its ledger of goodput, its timeline (--trace) and its run folder
// (--run-dir). One thread, the loop's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "launcher/lead/control/run_pace.h"
#include "launcher/lead/events/event_log.h"
#include "launcher/lead/job_events.h"
#include "launcher/lead/job_ledger.h"
#include "launcher/lead/job_trace.h"
#include "launcher/lead/metrics/job_counters.h"
#include "launcher/lead/metrics/metrics_server.h"
#include "launcher/lead/run_folder.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

class JobTelemetry {
 public:
  // The job's status now or a little later, also before the job has begun.
  using Look = std::function<void(std::function<void(const JobStatus&)> done)>;
  // plan must outlive it.
  explicit JobTelemetry(const Plan& plan);

  // Opens what the plan asks for. takes_over: the job goes on, so that an address for metrics that
  // is not free costs only a warning.
  Result<void> open(asio::io_context& loop, Look look, bool takes_over);

  // The job begins on these hosts. was: the state under the leader before, of a job that goes on.
  void begins(const JobCore& job, const std::vector<std::string>& hosts,
              const std::optional<JobRecord>& was);
  void begin_round(int round, int size);
  // An event for the job, before the job takes it.
  void see(const JobCore::Event& event, const JobCore& job);
  // A worker has ended; the job may learn of it later.
  void worker_ended(Slot slot, const WorkerEnd& end, const JobCore& job);
  // clock_error: of that host's clock here.
  void take(int node, const std::string& host, Duration clock_error, const NodeMessage& message);
  // The job has ended: closes the books.
  void finish();
  // Writes the timeline of a job that has ended. That takes time, so the report comes first.
  void write_trace() { trace_.write(); }
  // The accounts up to now, or to 100 ms before: a reader of the metrics and `dlaunchctl top` each
  // ask for them more than once, and in a large job they take time.
  const Goodput& goodput();
  // The accounts now, with waits that are under way.
  Goodput goodput_with(const std::vector<OpenWait>& open) {
    return open.empty() ? goodput() : ledger_.at(steady_now(), open);
  }
  // Calls then() once the events and the run folder are written, and no program should still ask
  // for the last event, or after 5 s. others_owe: whether a program should still ask for the last
  // line of a rank.
  void close(std::function<bool()> others_owe, std::function<void()> then);

  JobEvents& events() { return events_; }
  // As EventFeed::ask().
  void ask_events(std::optional<std::uint64_t> after, const EventFeed::Reply& reply) {
    log_->ask(after, reply);
  }
  const JobCounters& counters() const { return counters_; }
  // How far the program is, by its own words.
  std::optional<RunPace> pace(TimePoint now) const { return pace_.at(now); }
  void measured(const StepTimes& step);
  void looked(const JobStatus& status) { counters_.take(status); }

 private:
  void take(const JobEvent& event);
  void end_round(TimePoint now);

  const Plan& plan_;
  Look look_;
  JobLedger ledger_;
  std::optional<Goodput> goodput_;  // as of then
  TimePoint goodput_at_{};
  JobTrace trace_;
  JobEvents events_;
  JobCounters counters_;
  PaceMeter pace_;
  std::unique_ptr<EventLog> log_;  // once open
  std::unique_ptr<MetricsServer> metrics_;
  std::unique_ptr<RunFolder> run_folder_;  // null: none
  int round_ = 0;                          // 0: none has begun
};

}  // namespace dlaunch
