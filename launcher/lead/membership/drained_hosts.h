// DrainedHosts: the hosts that the user takes out of a running job and takes back (dlaunchctl
// drain, undrain), and the pods that Kubernetes ends, which may come back at any time. The journal
// passes them on to the next leader. Pure: it acts through Job.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "elastic/job_core.h"
#include "launcher/lead/control/job_status.h"
#include "launcher/lead/membership/node_membership.h"

namespace dlaunch {

class DrainedHosts {
 public:
  struct Job {
    int least = 1;  // the minimum of hosts
    std::function<void(const JobCore::Event&)> feed;
    std::function<bool(int node)> nobody_on;  // no worker of the job is on the node
    std::function<bool()> starts_hosts;       // we started the other hosts
    // Of such a job: a host's name in the list; takes a host out of the list, or back.
    std::function<std::string(int node)> listed_as;
    std::function<void(int node, bool out)> take_out;
    std::function<void()> write_down;  // updates the journal, if there is one
  };
  // membership must outlive it.
  DrainedHosts(NodeMembership& membership, Job job)
      : membership_(membership), job_(std::move(job)) {}

  // Takes over the hosts that the previous leader kept out. Call it before hosts join.
  void take_over();
  // We now lead a job that goes on: keeps the drained hosts out, and drains those still there.
  void go_on();

  // Drains a host, or undrains it if it is drained. Pass an element of all().
  void drain(const HostStatus& host);
  // A host got a SIGTERM of its own: its members leave at the next commit if the job then still has
  // enough hosts. False: it would not have, and nothing was done.
  bool leave(int node);
  // Ends the dlaunch of each drained host with code 0, and of each leaving host with 143, once no
  // worker of the job is there. Our own dlaunch goes on leading, and an elected leader keeps the
  // agent of its host.
  void let_go();

  // All hosts of the job, and the drained ones.
  std::vector<HostStatus> all() const;
  // One line for each drained host.
  std::vector<std::string> in_words() const;
  // For the next leader.
  std::vector<JobJournal::Drained> journal() const;

 private:
  NodeMembership& membership_;
  const Job job_;
  std::map<std::string, HostStatus> hosts_;  // by name
  std::set<int> leaving_;                    // nodes
};

}  // namespace dlaunch
