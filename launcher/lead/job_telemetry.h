// JobTelemetry: what outside programs learn about a job: its events (--events) and its metrics
// (--metrics). One thread, the loop's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "base/result.h"
#include "launcher/lead/events/event_log.h"
#include "launcher/lead/job_events.h"
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
  // The job begins. goodput: the accounts up to now.
  void begin_run(const std::vector<std::string>& hosts, std::function<Goodput()> goodput);
  // Calls then() once all events are written, or after 5 s.
  void close(std::function<void()> then);

  JobEvents& events() { return events_; }
  // As EventFeed::ask().
  void ask_events(std::optional<std::uint64_t> after, const EventFeed::Reply& reply) {
    log_->ask(after, reply);
  }
  const JobCounters& counters() const { return counters_; }
  void measured(const StepTimes& step) { counters_.take(step); }
  void looked(const JobStatus& status) { counters_.take(status); }

 private:
  void take(const JobEvent& event);

  const Plan& plan_;
  JobEvents events_;
  JobCounters counters_;
  std::unique_ptr<EventLog> log_;  // once open
  std::unique_ptr<MetricsServer> metrics_;
  std::unique_ptr<RunFolder> run_folder_;  // null: none
};

}  // namespace dlaunch
