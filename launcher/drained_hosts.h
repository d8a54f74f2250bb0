// DrainedHosts: the hosts that the user takes out of a job that has begun, and takes back
// (dlaunchctl drain, undrain). A leader that follows knows them by the journal.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "elastic/job_core.h"
#include "launcher/control/job_status.h"
#include "launcher/crew.h"
#include "launcher/ssh/started_hosts.h"

namespace dlaunch {

class DrainedHosts {
 public:
  struct Job {
    std::function<void(const JobCore::Event&)> feed;
    std::function<bool(int node)> nobody_on;  // nothing of the job is there
    std::function<StartedHosts*()> started;   // null: we have not started the other hosts
    std::function<void()> write_down;         // the journal, where there is one
  };
  // crew must outlive it.
  DrainedHosts(Crew& crew, Job job) : crew_(crew), job_(std::move(job)) {}

  // Before hosts join: those that the leader before us kept out.
  void take_over();
  // The job has begun, and goes on: those that were about to leave do so.
  void go_on();

  // A host as it is now (all()): it is to leave, or, where it is drained, may come back.
  void drain(const HostStatus& host);
  // The dlaunch of a drained host ends once nothing of the job is there; ours goes on leading.
  void let_go();

  // All hosts of the job, and those that were drained.
  std::vector<HostStatus> all() const;
  // A line for each that is drained.
  std::vector<std::string> in_words() const;
  // For a later leader.
  std::vector<JobJournal::Drained> journal() const;

 private:
  Crew& crew_;
  const Job job_;
  std::map<std::string, HostStatus> hosts_;  // by name
};

}  // namespace dlaunch
