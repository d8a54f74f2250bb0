#include "launcher/lead/start/ssh_starter.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>

#include <asio/post.hpp>

#include "base/endpoint.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/socket.h"
#include "base/text.h"
#include "launcher/lead/start/pbs_login.h"
#include "launcher/lead/start/ssh_login.h"
#include "launcher/wire/output_link.h"

namespace dlaunch {
namespace {

constexpr Duration kTellPatience = std::chrono::seconds(10);
constexpr Duration kEndPatience = std::chrono::seconds(1);
constexpr Duration kSilent = std::chrono::seconds(10);
constexpr Duration kAskLimit = std::chrono::seconds(2);
constexpr Duration kLostAfter = std::chrono::seconds(45);  // as by ssh's ServerAliveInterval

using Words = std::vector<std::string>;

// Unasked we use no program of the user's own on other hosts: it may reach a host from here only.
HostStarts::Tree tree_of(const Plan& plan) {
  if (plan.nodes.by_scheduler() || plan.nodes.tree == SshTree::off) return HostStarts::Tree::off;
  if (plan.nodes.tree == SshTree::on) return HostStarts::Tree::on;
  const auto ssh = find_starter(plan.nodes.ssh.front());
  return ssh && is_ssh(*ssh) ? HostStarts::Tree::attempt : HostStarts::Tree::off;
}

}  // namespace

struct SshStarter::Host final : HostLogin {
  Host(LoginTools& tools, User& user, const Plan& plan, const HostStarts::LogIn& what,
       int its_login)
      : HostLogin(tools, user, plan.nodes.ssh.front(), what.name),
        node(what.node),
        login(its_login),
        by(what.by),
        config(tools.loop, tools.helpers) {
    if (by_other()) await_outputs();
  }
  const int node, login, by;
  bool told = false;  // it knows that the job is over
  // Whether the output has come, if another host starts it.
  bool& has(OutputStream kind) { return has_[static_cast<std::size_t>(kind)]; }
  std::array<bool, 2> has_{};
  Command config;  // ssh's, for that host
  bool by_other() const { return by != HostStarts::kSelf; }
  bool connects() const { return by_other() && running() && state == State::starting; }
  using HostLogin::have_input;
};

HostStarts SshStarter::starts_of(const Plan& plan) {
  std::vector<HostStarts::Host> hosts;
  for (const HostPlan& host : plan.nodes.hosts) {
    hosts.push_back({.name = host.name, .slots = std::max(host.nproc, 1), .here = host.leads});
  }
  const auto seed = static_cast<std::uint64_t>(steady_now().time_since_epoch().count());
  return {{.at_once = plan.nodes.logins,
           .again = starts_again(plan),
           .seed = seed,
           .tree = tree_of(plan)},
          std::move(hosts)};
}

SshStarter::SshStarter(asio::io_context& loop, const Plan& plan, OutputHub& hub,
                       std::set<pid_t>& helpers, Handlers handlers)
    : loop_(loop),
      plan_(plan),
      hub_(hub),
      tools_{loop, helpers},
      handlers_(std::move(handlers)),
      starts_(starts_of(plan)),
      hosts_(plan.nodes.hosts),
      next_(loop, [this] { decide(HostStarts::Clock{}); }),
      patience_(loop) {}

SshStarter::~SshStarter() {
  for (const auto& host : running_) host->give_up();
}

Result<void> SshStarter::start(const Secret& secret, const std::string& endpoint) {
  auto ssh = find_starter(starter());
  if (!ssh) {
    Error error = ssh.error();
    if (plan_.nodes.by_scheduler()) error.what += "; --ssh-command ssh starts the hosts by ssh";
    return error;
  }
  ssh_ = *ssh;
  auto own = OwnBinary::open();
  if (!own) return own.error();
  tools_.binary = std::move(*own);
  order_ = {.secret = secret.bytes(), .endpoint = endpoint, .order = plan_.nodes.order};
  decide(HostStarts::Start{});
  tell_who_is_waited_for();
  return {};
}

// -- Starts

void SshStarter::decide(const HostStarts::Event& event) {
  if (finishing_) return;
  for (const auto& action : starts_.step(steady_now(), event)) {
    std::visit([this](const auto& what) { perform(what); }, action);
  }
  next_.arm(starts_.deadline().value_or(kNever));
  if (!starts_.all_answered() || std::exchange(all_answered_, true)) return;
  asio::post(loop_, [this] {
    if (!finishing_) handlers_.answered(failures_.all());
  });
}

void SshStarter::perform(const HostStarts::LogIn& login) {
  settle_place(login);
  HostLogin::User& us = *this;
  const auto host = std::make_shared<Host>(tools_, us, plan_, login, ++logins_);
  running_.push_back(host);
  if (host->by_other()) {
    if (is_ssh(ssh_)) return ask_for_config(host);
    return asio::post(loop_, [this, host] { order_login(host, host_at(host->node)); });
  }
  if (auto ok = log_in(host); !ok) {
    const SshTalk::Failed failed{kExitSystem, ok.error().what};
    asio::post(loop_, [this, host, failed] { on_failed(*host, failed, false); });
  }
}

void SshStarter::perform(const HostStarts::Tell& tell) { log_warn("{}", tell.line); }

void SshStarter::list(const std::vector<HostEntry>& hosts) {
  HostStarts::List list;
  for (const HostEntry& host : hosts) list.hosts.push_back({host.host, host.slots.value_or(1)});
  listed_ = hosts;
  decide(list);
}

bool SshStarter::runs(int login) const {
  return std::ranges::any_of(running_, [=](const HostPtr& host) {
    return host->login == login && host->running() && host->state != Host::State::failed;
  });
}

void SshStarter::end_host(int node) {
  for (const auto& host : running_) {
    if (host->node == node) host->close_in();
  }
}

// Uses the listed host, if the plan does not have it.
void SshStarter::settle_place(const HostStarts::LogIn& login) {
  HostPlan& there = host_at(login.node);
  if (there.name == login.name) return;
  there.name = login.name;
  for (const HostEntry& listed : listed_) {
    if (listed.host != login.name) continue;
    there.user = listed.user;
    there.port = listed.port;
  }
}

void SshStarter::tell_who_is_waited_for() {
  patience_.expires_after(kTellPatience);
  patience_.async_wait([this](asio::error_code ec) {
    if (ec || finishing_) return;
    std::string names;
    for (const auto& host : running_) {
      if (host->state == Host::State::starting) names += " " + host_at(host->node).name;
    }
    if (!names.empty()) log_warn("waiting for an answer by {} of{}", starter(), names);
  });
}

Result<SpawnRequest> SshStarter::request_for(const HostPlan& there, std::size_t order_size) const {
  const SameBinary binary = tools_.same_binary(tools_.binary->path());
  SpawnRequest request;
  request.path = ssh_;
  switch (plan_.nodes.starter) {
    case Starter::ssh:
      return ssh_request(ssh_, plan_.nodes.ssh, there, binary, order_size);
    case Starter::srun:
      request.argv = srun_arguments(there, binary, order_size);
      break;
    case Starter::pbsdsh: {
      const auto endpoint = parse_endpoint(order_.endpoint);
      if (!endpoint) return endpoint.error();
      request.path = "/proc/self/exe";
      request.argv = {"dlaunch",  kPbsLoginWord,  ssh_,       std::to_string(there.place),
                      there.name, endpoint->host, binary.path};
      break;
    }
    case Starter::flux:
      request.argv = flux_arguments(there, binary);
      break;
    case Starter::blaunch:
    case Starter::qrsh: {
      const bool by_qrsh = plan_.nodes.starter == Starter::qrsh;
      auto words =
          plain_arguments(by_qrsh ? Words{"qrsh", "-inherit"} : Words{"blaunch"}, there, binary);
      if (!words) return words.error();
      request.argv = std::move(*words);
      break;
    }
  }
  const bool by_srun = plan_.nodes.starter == Starter::srun;
  request.env = own_environment();
  if (by_srun) std::erase_if(request.env, asks_srun);
  return request;
}

Result<void> SshStarter::log_in(const HostPtr& host) {
  std::string order = order_for(*host);
  auto request = request_for(host_at(host->node), order.size());
  if (!request) return request.error();
  return host->start(std::move(*request), std::move(order));
}

std::string SshStarter::order_for(const Host& host) const {
  OrderFrame frame = order_;
  frame.number = host.node;
  frame.nproc = host_at(host.node).nproc;
  frame.login = host.login;
  return encode(frame);
}

// -- Its answers

void SshStarter::on_ready(HostLogin& login, const SshTalk::Ready& ready) {
  const HostPtr host = std::static_pointer_cast<Host>(login.shared_from_this());
  for (const OutputStream kind : kOutputStreams) {
    UniqueFd stream = host->release(kind);
    if (stream) {
      pass_on(host, kind, std::move(stream), kind == OutputStream::err ? "" : ready.begun);
    }
  }
  is_ready(*host);
}

void SshStarter::is_ready(const Host& host) {
  failures_.ready(host.node);
  decide(HostStarts::Ready{host.node});
}

void SshStarter::pass_on(const HostPtr& host, OutputStream kind, UniqueFd from,
                         const std::string& begun) {
  hub_.pass_on(std::move(from), kind, begun, [host] { host->output_ended(); });
}

void SshStarter::on_failed(HostLogin& login, const SshTalk::Failed& failed, bool reached) {
  const int node = static_cast<Host&>(login).node;
  login.fail();
  failures_.failed({node, failed.exit_code, failed.what});
  login.close_in();
  forget_if_over(login);
  decide(HostStarts::Failed{node, reached, failed.what});
}

// -- Logins by another host

// Asks ssh what the user's configuration on this host says of that one: the other hosts may not
// have it.
void SshStarter::ask_for_config(const HostPtr& host) {
  const HostPlan& there = host_at(host->node);
  const auto ssh = ssh_arguments(plan_.nodes.ssh, there, {}, 0);
  const auto asked = host->config.run({.argv = asking_for_config(ssh_, ssh),
                                       .env = own_environment(),
                                       .keep_errors = true,
                                       .limit = kAskLimit},
                                      [this, weak = std::weak_ptr(host)](const auto& end) {
                                        if (const HostPtr known = weak.lock()) {
                                          have_config(known, end);
                                        }
                                      });
  if (!asked) asio::post(loop_, [this, host] { have_config(host, {.status = 1}); });
}

void SshStarter::have_config(const HostPtr& host, const Command::End& end) {
  if (!host->connects()) return;
  const auto target = target_for_others(end.text);
  if (end.status != 0 || end.too_late || !target) return refuse(host);
  HostPlan known = host_at(host->node);
  known.name = target->host;
  known.user = target->user;
  known.port = target->port;
  order_login(host, known);
}

void SshStarter::order_login(const HostPtr& host, const HostPlan& there) {
  if (!host->connects()) return;
  const auto by = std::ranges::find_if(running_, [&](const HostPtr& other) {
    return other->node == host->by && other->state == Host::State::ready;
  });
  if (by == running_.end()) return refuse(host);
  NodeLogIn what{.login = host->login,
                 .number = host->node,
                 .nproc = there.nproc,
                 .host = there.name,
                 .user = there.user,
                 .port = there.port.value_or(0),
                 .binary = tools_.binary->path()};
  what.proof = proof_of(what, (*by)->login, Secret(order_.secret));
  handlers_.order(host->by, what);
}

// This process must log in there, without a fault of the other host.
void SshStarter::refuse(const HostPtr& host) {
  drop(host);
  decide(HostStarts::Refused{host->node, ""});
}

SshStarter::HostPtr SshStarter::find_login(int login) const {
  const auto found =
      std::ranges::find_if(running_, [=](const HostPtr& host) { return host->login == login; });
  return found == running_.end() ? nullptr : *found;
}

// From now on its dlaunch is refused.
void SshStarter::drop(const HostPtr& host) {
  host->fail();
  host->give_up();
  std::erase(running_, host);
}

void SshStarter::perform(const HostStarts::TakeBack& login) {
  const auto found = std::ranges::find_if(
      running_, [&](const HostPtr& host) { return host->node == login.node && host->connects(); });
  if (found == running_.end()) return;
  const HostPtr host = *found;
  drop(host);
  handlers_.order(host->by, NodeForgetLogIn{host->login});
}

void SshStarter::login_ended(int node, const NodeLoginEnded& ended) {
  const HostPtr host = find_login(ended.login);
  if (!host || host->by != node || !host->connects() || finishing_) return;
  const std::string why = escaped(ended.why);
  if (ended.reached) {
    host->give_up();
    return on_failed(*host, {ended.exit_code, why}, true);
  }
  drop(host);
  decide(HostStarts::Refused{host->node, why});
}

void SshStarter::take_output(UniqueFd fd, std::int32_t login, std::int32_t stream) {
  const HostPtr host = find_login(login);
  const bool known = stream == kOutputStream || stream == kErrorStream;
  if (!host || !host->connects() || !known || finishing_) return;
  const auto kind = stream == kOutputStream ? OutputStream::out : OutputStream::err;
  if (std::exchange(host->has(kind), true)) return;  // it comes once
  end_when_silent(fd.get(), kLostAfter);
  if (kind == OutputStream::out) {
    UniqueFd input(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!input) return refuse(host);  // out of descriptors; the dlaunch there ends with `fd`
    host->have_input(std::move(input));
  }
  pass_on(host, kind, std::move(fd), "");
  if (!host->has(OutputStream::out) || !host->has(OutputStream::err)) return;
  host->state = Host::State::ready;
  is_ready(*host);
}

// -- Ends

void SshStarter::on_over(HostLogin& login) {
  const auto host = std::static_pointer_cast<Host>(login.shared_from_this());
  forget_if_over(login);
  if (host->state == Host::State::starting) {
    on_failed(login, login.ended(), false);
  } else if (host->state == Host::State::ready && !finishing_) {
    const std::string why = (host->by_other() ? "it " : "its " + starter() + " ") + host->how();
    handlers_.lost({host->node, kExitRendezvous, why}, starts_again(plan_));
    decide(HostStarts::Ended{host->node, why});
  }
  check_done();
}

void SshStarter::forget_if_over(const HostLogin& login) {
  if (!login.over()) return;
  std::erase_if(running_, [&](const HostPtr& host) { return host.get() == &login; });
}

void SshStarter::finish(const std::function<bool(int node)>& linked, std::function<void()> done) {
  finishing_ = true;
  finished_at_ = steady_now();
  next_.arm(kNever);
  done_ = std::move(done);
  for (const auto& host : running_) {
    host->close_in();
    if (host->connects()) host->give_up();
    // The linked agent may be that of an earlier or later login.
    host->told = host->state == Host::State::ready && linked(host->node);
  }
  check_done();
  be_patient();
}

// Waits longer for those that know of the end, because they still have output to show.
void SshStarter::be_patient() {
  if (!done_) return;
  patience_.expires_after(kEndPatience);
  patience_.async_wait([this](asio::error_code ec) {
    if (ec) return;
    const Duration silent = steady_now() - std::max(finished_at_, hub_.passed_at());
    for (const auto& host : running_) {
      if (host->over() || host->given_up() || (host->told && silent < kSilent)) continue;
      if (host->told) {
        log_warn("the {} of host {} {} and shows nothing; {}", starter(), host_at(host->node).name,
                 host->running() ? "does not end" : "has left its output open",
                 host->running() ? "ending it" : "not waiting for more");
      }
      host->give_up();
    }
    check_done();
    be_patient();
  });
}

void SshStarter::check_done() {
  if (!done_) return;
  const bool all = std::ranges::all_of(running_, [](const HostPtr& host) { return host->over(); });
  if (all) asio::post(loop_, std::exchange(done_, nullptr));
}

}  // namespace dlaunch
