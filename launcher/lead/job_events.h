// JobEvents: finds out what happens in a job, for outside programs. Pure: it takes what the job
// decides and learns, and passes events on. Rounds and restarts are seen in the job's state; a
// commit is one event, but commits within 100 ms share one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "elastic/job_core.h"
#include "launcher/lead/events/job_event.h"
#include "launcher/plan/plan.h"
#include "launcher/wire/worker_end.h"

namespace dlaunch {

class JobEvents {
 public:
  using Sink = std::function<void(const JobEvent&)>;
  // plan must outlive it.
  JobEvents(const Plan& plan, Sink sink) : plan_(plan), sink_(std::move(sink)) {}

  // The job waits for its hosts.
  void queued();
  // hosts: those that are here. was: the state under the leader before, of a job that goes on.
  void begins(const JobCore& job, const std::vector<std::string>& hosts,
              const std::optional<JobRecord>& was);
  // Call it before and after each change of the job.
  void observe(TimePoint now, const JobCore& job);
  // An event for the job, before the job takes it.
  void fed(TimePoint now, const JobCore::Event& event, const JobCore& job);
  void starts(const JobCore::StartWorkers& start);
  // Before the job takes the end.
  void ended(const WorkerEnd& end, const JobCore& job);
  void start_failed(int rank, const SpawnError& error);
  void host_lost(const std::string& host, int node, const JobCore& job);
  void host_joined(const std::string& host);
  void ordered(const std::string& what) { emit(job_event::Order{what}); }
  // Something that another part has found.
  void happened(const JobEvent& event) { emit(event); }
  // The end of the job; later calls have no effect. job: null if it never began.
  void job_ended(int exit_code, const std::string& what, Duration ran, const JobCore* job);

 private:
  void emit(const JobEvent& event);
  void on(TimePoint now, const JobCore::Progress& progress, const JobCore& job);
  void on(TimePoint now, const JobCore::Replace& replace, const JobCore& job);
  void emit_commits();
  void note_reason(FailureKind reason, bool consequence);

  const Plan& plan_;
  const Sink sink_;
  int round_ = 0, size_ = 0;  // of the last round
  int used_ = 0;              // restarts
  std::optional<TimePoint> left_round_;
  std::optional<FailureKind> reason_;  // of the next restart
  bool reason_is_consequence_ = false;
  std::uint64_t version_ = 0;
  int commits_ = 0;  // not passed on yet
  int commits_round_ = 0;
  std::optional<TimePoint> last_commit_;  // passed on
  bool ended_ = false;
};

}  // namespace dlaunch
