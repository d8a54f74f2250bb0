// LoginHelper: logs in to further hosts for the leader that has started this host by ssh, and
// starts their dlaunches with the order that this one got. They connect to the leader by themselves
// (launcher/wire/output_link.h); the leader hears from here only of those that do not. Our ssh
// stays until the dlaunch there has ended, because some systems end a session's processes with it.
// One thread, the loop's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "launcher/lead/start/host_login.h"
#include "launcher/plan/plan.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class LoginHelper final : private HostLogin::User {
 public:
  using Say = std::function<void(const NodeMessage&)>;  // to the leader
  // helpers: gets the processes while they run. It and the plan must outlive this object.
  LoginHelper(asio::io_context& loop, const Plan& plan, std::set<pid_t>& helpers, Say say);
  // Ends the processes that still run.
  ~LoginHelper() override;

  // Refuses it if our order allows no tree, or if another process than the leader has made it.
  void take(const NodeLogIn& what);
  void take(const NodeForgetLogIn& what);

 private:
  struct Login;
  std::string why_not(const NodeLogIn& what) const;
  Result<void> start(Login& login, const NodeLogIn& what);
  void say_once(Login& login, const SshTalk::Failed& failed, bool reached);
  // Only a dlaunch that does not call the leader would be ready here.
  void on_ready(HostLogin& login, const SshTalk::Ready&) override { login.close_in(); }
  void on_failed(HostLogin& login, const SshTalk::Failed& failed, bool reached) override;
  void on_over(HostLogin& login) override;

  const Plan& plan_;
  const Say say_;
  LoginTools tools_;
  std::map<int, std::shared_ptr<Login>> logins_;  // by the leader's number
  std::set<int> asked_;                           // the numbers so far
};

}  // namespace dlaunch
