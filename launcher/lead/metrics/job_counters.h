// JobCounters: what has happened in a job so far, in numbers, since this dlaunch leads it. Pure: it
// takes the job's events, and the times that the straggler detection compares.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/flight_tally.h"
#include "elastic/straggler_detector.h"
#include "launcher/lead/control/job_status.h"
#include "launcher/lead/events/job_event.h"
#include "launcher/lead/metrics/goodput_counters.h"

namespace dlaunch {

class JobCounters {
 public:
  void take(const JobEvent& event);
  void take(const StepTimes& step);
  void take(const Goodput& now) { goodput.take(now); }
  // The workers' tallies, as of now.
  void take(const JobStatus& status);

  std::map<FailureKind, std::uint64_t> failures, restarts;  // by kind, by reason
  std::uint64_t rounds = 0, commits = 0, hosts_lost = 0, hangs = 0, stragglers = 0, orders = 0;
  std::uint64_t version = 0;           // of the newest commit
  std::uint64_t steps = 0;             // collectives of all ranks
  std::optional<StepTimes> last_step;  // of the last look
  // How long that rank waited in each of its collectives for the last rank; none: not known.
  std::optional<double> wait_of(int rank) const;
  GoodputCounters goodput;
  std::optional<int> exit_code;  // the job has ended
  // Of all ranks together, by kind and size; without what a process did after the last look at it.
  std::map<std::pair<int, int>, TallySums> tallies;

 private:
  void on(const job_event::WorkerEnded& event);
  void on(const job_event::Restart& event) { ++restarts[event.reason]; }
  void on(const job_event::Round&);
  void on(const job_event::Commit& event);
  void on(const job_event::HostLost&) { ++hosts_lost; }
  void on(const job_event::HangFinding&) { ++hangs; }
  void on(const job_event::Straggler& event);
  void on(const job_event::Order&) { ++orders; }
  void on(const job_event::JobEnded& event) { exit_code = event.exit_code; }
  template <class Event>
  void on(const Event&) {}

  struct Seen {
    int round = 0;
    std::vector<TallySums> tallies;
  };
  std::map<std::pair<std::string, int>, Seen> seen_;  // by host and pid
};

}  // namespace dlaunch
