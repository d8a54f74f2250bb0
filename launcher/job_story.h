// JobStory: what has happened to the job, as the report at its end and the lines on the way tell
// it.
#pragma once

#include <string>
#include <vector>

#include "elastic/job_core.h"
#include "launcher/plan/plan.h"
#include "launcher/process/spawn.h"
#include "launcher/report/report.h"

namespace dlaunch {

class JobStory {
 public:
  // `plan` must outlive it.
  explicit JobStory(const Plan& plan);

  // The ends of workers that follow are of this round.
  void begin_round(int round, int workers);
  // It is started again while others go on: its earlier end is no news of this round any more.
  void begins_again(int rank);
  void start_failed(int rank, const SpawnError& error);
  // It could not even be tried.
  void setup_failed() { facts_.end = JobEnd::setup_failed; }
  // A host and the ranks on it.
  void lost_host(const std::string& host, const JobCore& job, int node);
  void ended(const WorkerEnd& end);
  // The job's end begins; waits: who waits for whom. Said again, nothing changes.
  void end_begins(std::vector<std::string> waits);

  // One line each, for a job that goes on: of the failures in this round, or of one of them.
  void tell_restart(const JobCore& job) const;
  void tell_loss(const WorkerEnd& end, const std::string& what_next, const JobCore& job) const;

  struct Ending {
    int exit_code = 0;
    std::vector<std::string> report;
  };
  // Also writes --error-file. left: ranks that could not be ended.
  Ending finish(const JobCore::Finish& how, const JobCore& job, std::vector<int> left,
                const ShownLast& shown_last);

 private:
  void tell(std::vector<WorkerEnd> ends, const std::string& what_next, const JobCore& job) const;
  void write_error_file(const std::string& json) const;

  const Plan& plan_;
  JobFacts facts_;
};

}  // namespace dlaunch
