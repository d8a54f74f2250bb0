#include "launcher/agent/login_helper.h"

#include <utility>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/text.h"

namespace dlaunch {

struct LoginHelper::Login final : HostLogin {
  Login(LoginTools& tools, User& user, const std::string& starter, const NodeLogIn& what)
      : HostLogin(tools, user, starter, what.host), number(what.login) {}
  const int number;
  bool said = false;  // that it has failed
};

LoginHelper::LoginHelper(asio::io_context& loop, const Plan& plan, std::set<pid_t>& helpers,
                         Say say)
    : plan_(plan), say_(std::move(say)), tools_{loop, helpers} {}

LoginHelper::~LoginHelper() {
  for (const auto& [number, login] : logins_) login->give_up();
}

// "": the leader has sent it to this dlaunch, once, and our order allows it.
std::string LoginHelper::why_not(const NodeLogIn& what) const {
  if (plan_.nodes.ssh.empty()) return "its order allows no logins to further hosts";
  const auto proof = proof_of(what, plan_.nodes.login, Secret(plan_.secret));
  if (!macs_equal(what.proof, proof)) return "the message does not come from the leader";
  return asked_.contains(what.login) ? "the message has come before" : "";
}

void LoginHelper::take(const NodeLogIn& what) {
  if (const std::string why = why_not(what); !why.empty()) {
    log_warn("refused to log in to host {}: {}", escaped(what.host), why);
    return say_(NodeLoginEnded{what.login, kExitRendezvous, false, why});
  }
  asked_.insert(what.login);
  HostLogin::User& us = *this;
  const auto login = std::make_shared<Login>(tools_, us, plan_.nodes.ssh.front(), what);
  auto started = start(*login, what);
  if (!started) return say_once(*login, {kExitSystem, started.error().what}, false);
  logins_[what.login] = login;
}

Result<void> LoginHelper::start(Login& login, const NodeLogIn& what) {
  if (!tools_.binary) {
    auto own = OwnBinary::open();
    if (!own) return own.error();
    tools_.binary = std::move(*own);
  }
  auto ssh = find_starter(plan_.nodes.ssh.front());
  if (!ssh) return ssh.error();
  HostPlan there{.name = what.host, .user = what.user, .port = std::nullopt};
  if (what.port > 0) there.port = what.port;
  std::string order = encode(OrderFrame{.secret = plan_.secret,
                                        .endpoint = plan_.nodes.endpoint,
                                        .number = what.number,
                                        .nproc = what.nproc,
                                        .login = what.login,
                                        .calls = true,
                                        .order = plan_.nodes.order});
  auto request =
      ssh_request(*ssh, plan_.nodes.ssh, there, tools_.same_binary(what.binary), order.size());
  return login.start(std::move(request), std::move(order));
}

void LoginHelper::take(const NodeForgetLogIn& what) {
  const auto login = logins_.find(what.login);
  if (login != logins_.end()) login->second->give_up();
}

void LoginHelper::say_once(Login& login, const SshTalk::Failed& failed, bool reached) {
  if (std::exchange(login.said, true)) return;
  say_(NodeLoginEnded{login.number, failed.exit_code, reached, failed.what});
}

void LoginHelper::on_failed(HostLogin& login, const SshTalk::Failed& failed, bool reached) {
  login.fail();
  say_once(static_cast<Login&>(login), failed, reached);
  login.close_in();
}

// The leader ignores it if the dlaunch there has called it meanwhile.
void LoginHelper::on_over(HostLogin& login) {
  auto& ours = static_cast<Login&>(login);
  say_once(ours, login.ended(), false);
  logins_.erase(ours.number);  // the caller still holds it
}

}  // namespace dlaunch
