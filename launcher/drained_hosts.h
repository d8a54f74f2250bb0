// DrainedHosts: the hosts that the user takes out of a job that has begun, and takes back
// (dlaunchctl drain, undrain). A leader that follows knows them by the journal. And pods that
// Kubernetes ends, which may come back whenever they like.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "elastic/job_core.h"
#include "launcher/control/job_status.h"
#include "launcher/node_membership.h"
#include "launcher/ssh/started_hosts.h"

namespace dlaunch {

class DrainedHosts {
 public:
  struct Job {
    int least = 1;  // hosts that the job has to have
    std::function<void(const JobCore::Event&)> feed;
    std::function<bool(int node)> nobody_on;  // nothing of the job is there
    std::function<StartedHosts*()> started;   // null: we have not started the other hosts
    std::function<void()> write_down;         // the journal, where there is one
  };
  // membership must outlive it.
  DrainedHosts(NodeMembership& membership, Job job)
      : membership_(membership), job_(std::move(job)) {}

  // Before hosts join: those that the leader before us kept out.
  void take_over();
  // The job has begun, and goes on: those that were about to leave do so.
  void go_on();

  // A host as it is now (all()): it is to leave, or, where it is drained, may come back.
  void drain(const HostStatus& host);
  // A host has a SIGTERM of its own: its members leave at the next commit, if the job still has
  // enough hosts then. False: it has not, and nothing was done.
  bool leave(int node);
  // The dlaunch of a drained host ends with 0 once nothing of the job is there, and that of a host
  // that leaves with 143; ours goes on leading.
  void let_go();

  // All hosts of the job, and those that were drained.
  std::vector<HostStatus> all() const;
  // A line for each that is drained.
  std::vector<std::string> in_words() const;
  // For a later leader.
  std::vector<JobJournal::Drained> journal() const;

 private:
  NodeMembership& membership_;
  const Job job_;
  std::map<std::string, HostStatus> hosts_;  // by name
  std::set<int> leaving_;                    // nodes
};

}  // namespace dlaunch
