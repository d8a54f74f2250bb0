// SshStarter: starts a dlaunch on each of the other hosts of a Plan by its Starter, sends each its
// order, and passes on its output. ssh_talk.h has the protocol and judges the answers; host_login.h
// has the processes; elastic/host_starts.h decides which host is started when, by whom, and again.
// One thread, the loop's.
//
// The dlaunch there lives as long as its stdin is open: the end of this process, of its ssh or of
// the connection ends it and its workers. A dlaunch that another host has started connects to us
// instead (launcher/wire/output_link.h), so that it does not depend on that host.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/secret.h"
#include "elastic/host_starts.h"
#include "launcher/lead/start/host_login.h"
#include "launcher/lead/start/ssh_talk.h"
#include "launcher/output/output_hub.h"
#include "launcher/plan/hostfile.h"
#include "launcher/plan/plan.h"
#include "launcher/process/command.h"
#include "launcher/process/spawn.h"
#include "launcher/wire/deadline_timer.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class SshStarter final : private HostLogin::User {
 public:
  struct Handlers {
    // All hosts have answered; some may not be able to take part.
    std::function<void(const std::vector<HostFailure>&)> answered;
    // The ssh of a host that was ready has ended. again: it will be started again; the user was
    // informed.
    std::function<void(const HostFailure&, bool again)> lost;
    // A host should leave the job: call end_host() once no worker of the job is there.
    std::function<void(int node)> leave;
    // Sends a message to a host of the job.
    std::function<void(int node, const NodeMessage&)> order;
  };
  // helpers: gets the processes while they run, so that no other code ends or reaps them. All but
  // the handlers must outlive this object.
  SshStarter(asio::io_context& loop, const Plan& plan, OutputHub& hub, std::set<pid_t>& helpers,
             Handlers handlers);
  ~SshStarter() override;

  // endpoint: of the leader, as the other hosts reach it. Error: our own binary cannot be read, or
  // there is no such ssh.
  Result<void> start(const Secret& secret, const std::string& endpoint);

  // Replaces the list of hosts.
  void list(const std::vector<HostEntry>& hosts);
  // The ssh of that login has not ended.
  bool runs(int login) const;
  // The host leaves as if no longer listed, or comes back; `runs`: end_host() was not called for
  // it.
  void drain(int node) { decide(HostStarts::Drain{node}); }
  void undrain(int node, bool runs) { decide(HostStarts::Undrain{node, runs}); }
  // The host can be ordered to log in to others, or no longer.
  void linked(int node, bool here) { decide(HostStarts::Linked{node, here}); }
  // The host has not logged in to another.
  void login_ended(int node, const NodeLoginEnded& ended);
  // A dlaunch that another host has started sends its output by this connection.
  void take_output(UniqueFd fd, std::int32_t login, std::int32_t stream);
  // Ends the dlaunch there.
  void end_host(int node);
  // The host's problem, in words; "": none.
  std::string words(int node) const { return starts_.words(steady_now(), node); }
  // The name of the host at that place; "": there has been none yet.
  const std::string& name(int node) const { return starts_.name(node); }

  // The job is over. Closes the stdin of all, and waits until their remaining output is shown: no
  // longer than a second for hosts for which `linked` is false, and for the others until nothing
  // has come from any for ten seconds.
  void finish(const std::function<bool(int node)>& linked, std::function<void()> done);

 private:
  struct Host;
  // Failed hosts are started again.
  static bool starts_again(const Plan& plan) {
    return plan.max_restarts.restarts > 0 || !plan.nodes.discovery.empty();
  }
  static HostStarts starts_of(const Plan& plan);
  const std::string& starter() const { return plan_.nodes.ssh.front(); }  // "ssh", "srun"
  using HostPtr = std::shared_ptr<Host>;
  void decide(const HostStarts::Event& event);
  void perform(const HostStarts::LogIn& login);
  void perform(const HostStarts::TakeBack& login);
  void perform(const HostStarts::Leave& leave) { handlers_.leave(leave.node); }
  void perform(const HostStarts::Tell& tell);
  void settle_place(const HostStarts::LogIn& login);
  HostPlan& host_at(int node) { return hosts_[static_cast<std::size_t>(node)]; }
  const HostPlan& host_at(int node) const { return hosts_[static_cast<std::size_t>(node)]; }
  void tell_who_is_waited_for();
  Result<void> log_in(const HostPtr& host);
  Result<SpawnRequest> request_for(const HostPlan& there, std::size_t order_size) const;
  void on_ready(HostLogin& login, const SshTalk::Ready& ready) override;
  void on_failed(HostLogin& login, const SshTalk::Failed& failed, bool reached) override;
  void on_over(HostLogin& login) override;
  void is_ready(const Host& host);
  void pass_on(const HostPtr& host, OutputStream kind, UniqueFd from, const std::string& begun);
  std::string order_for(const Host& host) const;
  void forget_if_over(const HostLogin& login);
  void check_done();
  void be_patient();

  // -- Logins by another host
  void ask_for_config(const HostPtr& host);
  void have_config(const HostPtr& host, const Command::End& end);
  void order_login(const HostPtr& host, const HostPlan& there);
  void refuse(const HostPtr& host);
  void drop(const HostPtr& host);
  HostPtr find_login(int login) const;

  asio::io_context& loop_;
  const Plan& plan_;
  OutputHub& hub_;
  LoginTools tools_;
  const Handlers handlers_;
  std::string ssh_;  // the program
  OrderFrame order_;
  HostStarts starts_;
  std::vector<HostPlan> hosts_;    // the plan's, then later ones
  std::vector<HostEntry> listed_;  // the newest list
  std::vector<HostPtr> running_;   // one for each start
  LoginFailures failures_;
  int logins_ = 0;  // so far
  bool all_answered_ = false;
  bool finishing_ = false;
  TimePoint finished_at_{};
  DeadlineTimer next_;           // of the starts
  asio::steady_timer patience_;  // with hosts that do not end
  std::function<void()> done_;
};

}  // namespace dlaunch
