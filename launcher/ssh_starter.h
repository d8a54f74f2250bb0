// SshStarter: starts a dlaunch on each of the other hosts of a Plan by ssh or srun, at most so many
// logins at once, tells each what it needs, and passes on what it prints. What is said, and what
// becomes of the answers, is ssh_talk.h's. One thread, the loop's.
//
// The dlaunch there lives as long as its stdin does: the end of this process, of its ssh or of the
// connection ends it and its workers.
#pragma once

#include <sys/types.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>

#include "base/secret.h"
#include "launcher/output_hub.h"
#include "launcher/own_binary.h"
#include "launcher/plan.h"
#include "launcher/ssh_talk.h"

namespace dlaunch {

class SshStarter {
 public:
  struct Listener {
    // All hosts have answered; some may not be able to take part.
    std::function<void(const std::vector<HostFailure>&)> answered;
    // The ssh of a host that was ready has ended.
    std::function<void(const HostFailure&)> lost;
  };
  // helpers: gets the processes while they run, so that nobody else ends or reaps them. All but the
  // listener must outlive this object.
  SshStarter(asio::io_context& loop, const Plan& plan, OutputHub& hub, std::set<pid_t>& helpers,
             Listener listener);
  ~SshStarter();

  // endpoint: of the leader, as the other hosts reach it. Error: our own binary cannot be read, or
  // there is no such ssh.
  Result<void> start(const Secret& secret, const std::string& endpoint);

  // The job is over. Ends all at their stdin, and waits until what they had to show is shown; no
  // longer than a second for those that `linked` does not hold for.
  void finish(const std::function<bool(int node)>& linked, std::function<void()> done);

 private:
  struct Host;
  const std::string& starter() const { return plan_.nodes.ssh.front(); }  // "ssh", "srun"
  using HostPtr = std::shared_ptr<Host>;
  void next_logins();
  void tell_who_is_waited_for();
  Result<void> log_in(const HostPtr& host);
  void watch(const HostPtr& host);
  void read(const HostPtr& host, bool error);
  void heard(const HostPtr& host, std::string_view bytes);
  void on(const HostPtr& host, const SshTalk::Ready& ready);
  void on(const HostPtr& host, const SshTalk::Failed& failed);
  void on(const HostPtr& host, const SshTalk::Push&);
  void on(const HostPtr& host, const SshTalk::Order&);
  std::string order_for(const HostPtr& host) const;
  void send(const HostPtr& host, std::string bytes);
  void write(const HostPtr& host);
  void over(const HostPtr& host);
  void check_answered();
  void check_done();
  void give_up_on(const HostPtr& host);

  asio::io_context& loop_;
  const Plan& plan_;
  OutputHub& hub_;
  std::set<pid_t>& helpers_;
  const Listener listener_;
  std::string ssh_;                  // the program
  std::optional<OwnBinary> binary_;  // ours
  std::string pushed_;               // its content, once a host needs it
  OrderFrame order_;
  std::vector<HostPtr> hosts_;
  std::vector<HostFailure> failures_;
  std::size_t started_ = 0;
  bool all_answered_ = false;
  bool finishing_ = false;
  asio::steady_timer patience_;  // with those that do not answer
  std::function<void()> done_;
};

}  // namespace dlaunch
