// StartedHosts: the hosts that a job's leader starts itself. Enough of them must answer before the
// job can begin. Later the discovery script may list others, and a host that should leave is
// released once no worker of the job is there. One thread, the loop's.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/lead/start/host_discovery.h"
#include "launcher/lead/start/host_quorum.h"
#include "launcher/lead/start/ssh_starter.h"

namespace dlaunch {

class StartedHosts {
 public:
  struct Handlers {
    // The job cannot begin; the user was informed.
    std::function<void(int exit_code)> too_few;
    // A host should leave: from a running job in order, from one that has not begun at once.
    std::function<void(int node)> leaves;
    // The host is gone; expect nothing more from it.
    std::function<void(int node)> gone;
    // Sends a message to a host of the job.
    std::function<void(int node, const NodeMessage&)> order;
    // Why no worker could start on our own host; see WorkerStarter::foresee_failure().
    std::function<SpawnError()> own_failure;
  };
  // All but the handlers must outlive this object.
  StartedHosts(asio::io_context& loop, const Plan& plan, OutputHub& hub, std::set<pid_t>& helpers,
               Handlers handlers);

  // endpoint: of the leader, as the other hosts reach it. Error: our own, not a host's.
  Result<void> start(const Secret& secret, const std::string& endpoint);
  // From here on the job handles the loss of a host.
  void begin() { begun_ = true; }
  // Releases the leaving hosts without workers of the job.
  void let_go(const std::function<bool(int node)>& nobody_on);
  // By the user's order the host leaves as if no longer listed, until undrain().
  void drain(int node) { starter_.drain(node); }
  void undrain(int node) { starter_.undrain(node, leaving_.erase(node) > 0); }
  bool some_leave() const { return !leaving_.empty(); }
  // The ssh of that login has not ended.
  bool runs(int login) const { return starter_.runs(login); }
  // See SshStarter.
  void linked(int node, bool here) { starter_.linked(node, here); }
  void login_ended(int node, const NodeLoginEnded& ended) { starter_.login_ended(node, ended); }
  void take_output(UniqueFd fd, std::int32_t login, std::int32_t stream) {
    starter_.take_output(std::move(fd), login, stream);
  }
  // Its name in the plan or the list.
  const std::string& name(int node) const { return starter_.name(node); }
  // The hosts' problems, one line each.
  std::vector<std::string> in_words() const;
  // The job is over; see SshStarter::finish(). linked: by the store's connection.
  void finish(const std::function<bool(int node)>& linked, std::function<void()> done);

 private:
  void on_answered(std::vector<HostFailure> failures);
  void on_failed(const std::vector<HostFailure>& failures);
  void on_lost(const HostFailure& failure, bool again);

  asio::io_context& loop_;
  const Plan& plan_;
  std::set<pid_t>& helpers_;
  const Handlers handlers_;
  HostQuorum quorum_;  // before the job begins
  SshStarter starter_;
  std::unique_ptr<HostDiscovery> discovery_;
  std::set<int> leaving_;  // nodes
  bool begun_ = false;
  bool over_ = false;
};

}  // namespace dlaunch
