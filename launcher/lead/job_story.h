// JobStory: the job's events, for the report at its end and the lines on the way.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "elastic/job_core.h"
#include "launcher/lead/report/report.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

// What follows the loss of the worker with this rank (-1: a spare) in a job that goes on with the
// others, in words. pause: " in 1.3 s", or "".
std::string what_follows(const JobCore& job, Slot slot, int rank, int size_before,
                         const std::string& pause);

// "rank 3 (pid 77 on b) has not ended …".
std::string in_words(const JobCore::AwaitEnd& awaited, const std::string& host);

class JobStory {
 public:
  // `plan` must outlive it.
  explicit JobStory(const Plan& plan);

  // Ends of workers from now on belong to this round.
  void begin_round(int round, int workers);
  // The rank is started again while others go on: the story forgets its earlier end in this round.
  void begins_again(int rank);
  void start_failed(int rank, const SpawnError& error);
  // The start could not even be tried.
  void setup_failed() { facts_.end = JobEnding::setup_failed; }
  // A host was lost, with the ranks on it.
  void lost_host(const std::string& host, std::vector<int> ranks);
  // place: the rank that the job has given to that worker; -1: it was a spare, which explains no
  // failure of the job.
  void ended(WorkerEnd end, int place);
  // What the rank was doing when another one gave up waiting.
  void note_stacks(int rank, const std::vector<std::string>& lines);
  // For which ranks others waited then, by NCCL's counts.
  void note_late_in_nccl(const RankSet& ranks, const std::string& sentence);
  // The job's end begins; waits: the sentences of JobMonitor::waits(). Idempotent.
  void end_begins(std::vector<std::string> waits);

  // One line each, for a job that goes on: about the failures in this round, or about one of them.
  void tell_restart(const JobCore& job) const;
  void tell_loss(const WorkerEnd& end, const std::string& what_next, const JobCore& job) const;

  // Where the job's time went, for the report.
  void set_goodput(Goodput goodput) { facts_.goodput = std::move(goodput); }

  struct Ending {
    int exit_code = 0;
    std::vector<std::string> report;
  };
  // Also writes --error-file, and the flight dumps of --run-dir.
  // left: ranks that could not be ended.
  Ending finish(const JobCore::Finish& how, const JobCore& job, std::vector<int> left,
                const ShownLast& shown_last);

 private:
  void tell(std::vector<WorkerEnd> ends, const std::string& what_next, const JobCore& job) const;
  void write_flight_dumps(const std::string& folder) const;

  const Plan& plan_;
  JobFacts facts_;
};

}  // namespace dlaunch
