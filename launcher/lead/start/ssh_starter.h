// SshStarter: starts a dlaunch on each of the other hosts of a Plan by its Starter, sends each its
// order, and passes on its output. ssh_talk.h has the protocol and judges the answers;
// elastic/host_starts.h decides which host is started when, and again. One thread, the loop's.
//
// The dlaunch there lives as long as its stdin is open: the end of this process, of its ssh or of
// the connection ends it and its workers.
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

#include "base/clock.h"
#include "base/secret.h"
#include "elastic/host_starts.h"
#include "launcher/lead/start/ssh_talk.h"
#include "launcher/output/output_hub.h"
#include "launcher/plan/hostfile.h"
#include "launcher/plan/plan.h"
#include "launcher/process/own_binary.h"
#include "launcher/process/spawn.h"
#include "launcher/wire/deadline_timer.h"

namespace dlaunch {

class SshStarter {
 public:
  struct Handlers {
    // All hosts have answered; some may not be able to take part.
    std::function<void(const std::vector<HostFailure>&)> answered;
    // The ssh of a host that was ready has ended. again: it will be started again; the user was
    // informed.
    std::function<void(const HostFailure&, bool again)> lost;
    // A host should leave the job: call end_host() once no worker of the job is there.
    std::function<void(int node)> leave;
  };
  // helpers: gets the processes while they run, so that no other code ends or reaps them. All but
  // the handlers must outlive this object.
  SshStarter(asio::io_context& loop, const Plan& plan, OutputHub& hub, std::set<pid_t>& helpers,
             Handlers handlers);
  ~SshStarter();

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
  void perform(const HostStarts::Leave& leave) { handlers_.leave(leave.node); }
  void perform(const HostStarts::Tell& tell);
  void settle_place(const HostStarts::LogIn& login);
  HostPlan& host_at(int node) { return hosts_[static_cast<std::size_t>(node)]; }
  const HostPlan& host_at(int node) const { return hosts_[static_cast<std::size_t>(node)]; }
  void tell_who_is_waited_for();
  Result<void> log_in(const HostPtr& host);
  Result<SpawnRequest> request_for(const HostPlan& there, std::size_t order_size) const;
  void watch(const HostPtr& host);
  void read(const HostPtr& host, OutputStream kind);
  void heard(const HostPtr& host, std::string_view bytes);
  void on(const HostPtr& host, const SshTalk::Ready& ready);
  void on(const HostPtr& host, const SshTalk::Failed& failed) { failed_there(host, failed, true); }
  void failed_there(const HostPtr& host, const SshTalk::Failed& failed, bool reached);
  void on(const HostPtr& host, const SshTalk::Push&);
  void on(const HostPtr& host, const SshTalk::Order&);
  std::string order_for(const HostPtr& host) const;
  void send(const HostPtr& host, std::string_view bytes);
  void write(const HostPtr& host);
  void over(const HostPtr& host);
  void forget_if_over(const HostPtr& host);
  void check_done();
  void be_patient();
  void give_up_on(const HostPtr& host);

  asio::io_context& loop_;
  const Plan& plan_;
  OutputHub& hub_;
  std::set<pid_t>& helpers_;
  const Handlers handlers_;
  std::string ssh_;                  // the program
  std::optional<OwnBinary> binary_;  // ours
  std::string pushed_;               // its content, once a host needs it
  OrderFrame order_;
  HostStarts starts_;
  std::vector<HostPlan> hosts_;    // the plan's, then later ones
  std::vector<HostEntry> listed_;  // the newest list
  std::vector<HostPtr> running_;   // one for each start
  std::vector<HostFailure> failures_;
  int logins_ = 0;  // so far
  bool all_answered_ = false;
  bool finishing_ = false;
  TimePoint finished_at_{};
  DeadlineTimer next_;           // of the starts
  asio::steady_timer patience_;  // with hosts that do not end
  std::function<void()> done_;
};

}  // namespace dlaunch
