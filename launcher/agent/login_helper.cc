#include "launcher/agent/login_helper.h"

#include <utility>

#include "base/exit_code.h"

namespace dlaunch {

struct LoginHelper::Login final : HostLogin {
  Login(LoginTools& tools, User& user, const NodeLogIn& what)
      : HostLogin(tools, user, what.ssh.front(), what.host), number(what.login) {}
  const int number;
  bool said = false;  // that it has failed
};

LoginHelper::LoginHelper(asio::io_context& loop, const Plan& plan, std::set<pid_t>& helpers,
                         Say say)
    : plan_(plan), say_(std::move(say)), tools_{loop, helpers} {}

LoginHelper::~LoginHelper() {
  for (const auto& [number, login] : logins_) login->give_up();
}

void LoginHelper::take(const NodeLogIn& what) {
  HostLogin::User& us = *this;
  const auto login = std::make_shared<Login>(tools_, us, what);
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
  auto ssh = find_starter(what.ssh.front());
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
  auto request = ssh_request(*ssh, what.ssh, there, tools_.same_binary(what.binary), order.size());
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
