// StartedHosts: the hosts that a job's leader starts itself. Enough of them have to answer before
// the job can begin; since then the discovery script may list others, and a host that is to leave
// is let go once nothing of the job is there. One thread, the loop's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/ssh/host_discovery.h"
#include "launcher/ssh/ssh_starter.h"

namespace dlaunch {

class StartedHosts {
 public:
  struct Listener {
    // Before the job began: it cannot, and the user knows why.
    std::function<void(int exit_code)> too_few;
    // A host is to leave a job that has begun; of one that has not, it can go at once.
    std::function<void(int node)> leaves;
    // It is gone from here; nothing more may be expected of it.
    std::function<void(int node)> gone;
  };
  // All but the listener must outlive this object.
  StartedHosts(asio::io_context& loop, const Plan& plan, OutputHub& hub, std::set<pid_t>& helpers,
               Listener listener);

  // endpoint: of the leader, as the other hosts reach it. Error: of ourselves, not of a host.
  Result<void> start(const Secret& secret, const std::string& endpoint);
  // From here on the loss of a host is the job's affair.
  void begin() { begun_ = true; }
  // Those that are to leave, and on which nothing of the job is.
  void let_go(const std::function<bool(int node)>& nobody_on);
  // By order of the user: it leaves as one that is not listed any more, until it is to come back.
  void drain(int node) { starter_.drain(node); }
  void undrain(int node) { starter_.undrain(node, leaving_.erase(node) > 0); }
  bool some_leave() const { return !leaving_.empty(); }
  // The ssh of that login has not ended.
  bool runs(int login) const { return starter_.runs(login); }
  // As the plan, or the list, calls it.
  const std::string& name(int node) const { return starter_.name(node); }
  // What is not as it should be, a line for each host.
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
  const Listener listener_;
  SshStarter starter_;
  std::unique_ptr<HostDiscovery> discovery_;
  std::set<int> failed_;   // nodes, before the job began
  std::set<int> leaving_;  // nodes
  bool begun_ = false;
  bool over_ = false;
};

}  // namespace dlaunch
