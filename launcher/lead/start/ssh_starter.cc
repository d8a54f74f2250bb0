#include "launcher/lead/start/ssh_starter.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <asio/post.hpp>
#include <fmt/format.h>

#include "base/endpoint.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/signal_name.h"
#include "launcher/lead/report/report.h"
#include "launcher/lead/start/pbs_login.h"
#include "launcher/lead/start/ssh_login.h"

extern char** environ;

namespace dlaunch {
namespace {

using Descriptor = asio::posix::stream_descriptor;

constexpr Duration kTellPatience = std::chrono::seconds(10);
constexpr Duration kEndPatience = std::chrono::seconds(1);
constexpr Duration kSilent = std::chrono::seconds(10);

using Words = std::vector<std::string>;

struct Pipe {
  UniqueFd reading, writing;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe for ssh", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::string describe_end(const siginfo_t& info) {
  if (info.si_code != CLD_EXITED) return "was ended by " + describe_signal(info.si_status);
  return fmt::format("ended with exit code {}", info.si_status);
}

}  // namespace

struct SshStarter::Host {
  Host(asio::io_context& loop, int its_node, int its_login, const std::string& starter)
      : node(its_node),
        login(its_login),
        in(loop),
        outputs{Descriptor(loop), Descriptor(loop)},
        exited(loop),
        talk(starter) {}
  enum class State { starting, ready, failed };
  const int node, login;
  State state = State::starting;
  pid_t pid = -1;
  Descriptor in;                      // its stdin
  std::array<Descriptor, 2> outputs;  // until it is ready; see output()
  Descriptor& output(OutputStream kind) { return outputs[static_cast<std::size_t>(kind)]; }
  int open_outputs = 2;
  Descriptor exited;  // the pidfd
  bool running = false;
  bool given_up = false;
  bool told = false;  // it knows that the job is over
  std::string how;    // how it ended
  SshTalk talk;
  std::string unsent;
  std::size_t sent = 0;

  bool over() const { return !running && (open_outputs == 0 || given_up); }
};

HostStarts SshStarter::starts_of(const Plan& plan) {
  std::vector<HostStarts::Host> hosts;
  for (const HostPlan& host : plan.nodes.hosts) {
    hosts.push_back({.name = host.name, .slots = std::max(host.nproc, 1), .here = host.leads});
  }
  const auto seed = static_cast<std::uint64_t>(steady_now().time_since_epoch().count());
  return {{.at_once = plan.nodes.logins, .again = starts_again(plan), .seed = seed},
          std::move(hosts)};
}

SshStarter::SshStarter(asio::io_context& loop, const Plan& plan, OutputHub& hub,
                       std::set<pid_t>& helpers, Handlers handlers)
    : loop_(loop),
      plan_(plan),
      hub_(hub),
      helpers_(helpers),
      handlers_(std::move(handlers)),
      starts_(starts_of(plan)),
      hosts_(plan.nodes.hosts),
      next_(loop, [this] { decide(HostStarts::Clock{}); }),
      patience_(loop) {}

SshStarter::~SshStarter() {
  for (const auto& host : running_) give_up_on(host);
}

Result<void> SshStarter::start(const Secret& secret, const std::string& endpoint) {
  const char* path = ::getenv("PATH");
  auto ssh = find_program(plan_.nodes.ssh.front(), path != nullptr ? path : "/usr/bin:/bin");
  if (!ssh) {
    Error error = ssh.error();
    if (plan_.nodes.by_scheduler()) error.what += "; --ssh-command ssh starts the hosts by ssh";
    return error;
  }
  ssh_ = *ssh;
  auto own = OwnBinary::open();
  if (!own) return own.error();
  binary_ = std::move(*own);
  order_ = {secret.bytes(), endpoint, 0, 0, 0, plan_.nodes.order};
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
    if (!finishing_) handlers_.answered(failures_);
  });
}

void SshStarter::perform(const HostStarts::LogIn& login) {
  settle_place(login);
  const auto host = std::make_shared<Host>(loop_, login.node, ++logins_, starter());
  running_.push_back(host);
  if (auto ok = log_in(host); !ok) {
    host->open_outputs = 0;
    const SshTalk::Failed failed{kExitSystem, ok.error().what};
    asio::post(loop_, [this, host, failed] { failed_there(host, failed, false); });
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
  return std::any_of(running_.begin(), running_.end(), [=](const HostPtr& host) {
    return host->login == login && host->running && host->state != Host::State::failed;
  });
}

void SshStarter::end_host(int node) {
  for (const auto& host : running_) {
    asio::error_code ec;
    if (host->node == node) host->in.close(ec);
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
  const SameBinary binary{binary_->path(), binary_->size(), binary_->build_id(),
                          binary_->build_id_at()};
  SpawnRequest request;
  request.path = ssh_;
  const auto by_ourselves = [&](std::vector<std::string> words) {
    request.path = "/proc/self/exe";
    request.argv.insert(request.argv.begin(), words.begin(), words.end());
  };
  switch (plan_.nodes.starter) {
    case Starter::ssh:
      request.argv = ssh_arguments(plan_.nodes.ssh, there, binary, order_size);
      if (is_ssh(ssh_)) by_ourselves({"dlaunch", kSshLoginWord, ssh_});
      break;
    case Starter::srun:
      request.argv = srun_arguments(there, binary, order_size);
      break;
    case Starter::pbsdsh: {
      const auto endpoint = parse_endpoint(order_.endpoint);
      if (!endpoint) return endpoint.error();
      by_ourselves({"dlaunch", kPbsLoginWord, ssh_, std::to_string(there.place), there.name,
                    endpoint->host, binary.path});
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
  for (char** item = environ; *item != nullptr; ++item) {
    if (!by_srun || !asks_srun(*item)) request.env.emplace_back(*item);
  }
  return request;
}

Result<void> SshStarter::log_in(const HostPtr& host) {
  std::array<Pipe, 3> pipes;
  for (auto& pipe : pipes) {
    auto made = make_pipe();
    if (!made) return made.error();
    pipe = std::move(*made);
  }
  const std::string order = order_for(host);
  auto request = request_for(host_at(host->node), order.size());
  if (!request) return request.error();
  request->in = pipes[0].reading.get();
  request->out = pipes[1].writing.get();
  request->err = pipes[2].writing.get();
  ::getrlimit(RLIMIT_NOFILE, &request->open_files);
  Spawned spawned;
  if (const auto error = spawn(*request, spawned); error.stage != Stage::none) {
    return Error{.what = error.what, .os_errno = error.os_errno};
  }
  host->pid = spawned.pid;
  host->running = true;
  helpers_.insert(spawned.pid);
  for (const int fd : {pipes[0].writing.get(), pipes[1].reading.get(), pipes[2].reading.get()}) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  asio::error_code ec;
  host->in.assign(pipes[0].writing.release(), ec);
  host->output(OutputStream::out).assign(pipes[1].reading.release(), ec);
  host->output(OutputStream::err).assign(pipes[2].reading.release(), ec);
  host->exited.assign(spawned.pidfd.release(), ec);
  watch(host);
  for (const OutputStream kind : kOutputStreams) read(host, kind);
  send(host, order);
  return {};
}

void SshStarter::watch(const HostPtr& host) {
  host->exited.async_wait(Descriptor::wait_read, [this, host](asio::error_code ec) {
    if (ec || !host->running) return;
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(host->pid), &info, WEXITED | WNOHANG);
    if (info.si_pid == 0) return watch(host);
    helpers_.erase(host->pid);
    host->running = false;
    host->how = describe_end(info);
    host->in.close(ec);
    host->exited.close(ec);
    over(host);
  });
}

// -- Its output until it is ready

void SshStarter::read(const HostPtr& host, OutputStream kind) {
  host->output(kind).async_wait(Descriptor::wait_read, [this, host, kind](asio::error_code) {
    Descriptor& stream = host->output(kind);
    if (!stream.is_open()) return;  // the hub has it now
    char bytes[4096];
    const ssize_t size = ::read(stream.native_handle(), bytes, sizeof bytes);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
      asio::error_code ec;
      stream.close(ec);
      --host->open_outputs;
      return over(host);
    }
    const std::string_view got(bytes, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    kind == OutputStream::err ? host->talk.said(got) : heard(host, got);
    if (stream.is_open()) read(host, kind);
  });
}

void SshStarter::heard(const HostPtr& host, std::string_view bytes) {
  for (const auto& action : host->talk.heard(bytes)) {
    if (host->state != Host::State::starting) return;
    std::visit([&](const auto& what) { on(host, what); }, action);
  }
}

void SshStarter::on(const HostPtr& host, const SshTalk::Push&) {
  log_info("pushing dlaunch to {}", host_at(host->node).name);
  if (pushed_.empty()) {
    auto content = binary_->read();
    if (!content) return on(host, SshTalk::Failed{kExitSystem, content.error().what});
    pushed_ = std::move(*content);
  }
  send(host, pushed_);
}

void SshStarter::on(const HostPtr& host, const SshTalk::Order&) { send(host, order_for(host)); }

std::string SshStarter::order_for(const HostPtr& host) const {
  OrderFrame frame = order_;
  frame.number = host->node;
  frame.nproc = host_at(host->node).nproc;
  frame.login = host->login;
  return encode(frame);
}

void SshStarter::on(const HostPtr& host, const SshTalk::Ready& ready) {
  host->state = Host::State::ready;
  for (const OutputStream kind : kOutputStreams) {
    Descriptor& stream = host->output(kind);
    if (!stream.is_open()) continue;
    const std::string begun = kind == OutputStream::err ? "" : ready.begun;
    hub_.pass_on(UniqueFd(stream.release()), kind, begun, [this, host] {
      --host->open_outputs;
      over(host);
    });
  }
  decide(HostStarts::Ready{host->node});
}

void SshStarter::failed_there(const HostPtr& host, const SshTalk::Failed& failed, bool reached) {
  host->state = Host::State::failed;
  if (!all_answered_) failures_.push_back({host->node, failed.exit_code, failed.what});
  asio::error_code ec;
  host->in.close(ec);
  forget_if_over(host);
  decide(HostStarts::Failed{host->node, reached, failed.what});
}

// -- Messages to it

void SshStarter::send(const HostPtr& host, std::string_view bytes) {
  const bool idle = host->unsent.empty();
  host->unsent += bytes;
  if (idle) write(host);
}

void SshStarter::write(const HostPtr& host) {
  host->in.async_write_some(
      asio::buffer(host->unsent.data() + host->sent, host->unsent.size() - host->sent),
      [this, host](asio::error_code ec, std::size_t size) {
        host->sent += size;
        if (ec || host->sent == host->unsent.size()) {
          host->unsent.clear();
          host->sent = 0;
        } else {
          write(host);
        }
      });
}

// -- Ends

// A host is over when its process and all its outputs have ended.
void SshStarter::over(const HostPtr& host) {
  if (!host->over()) return;
  forget_if_over(host);
  if (host->state == Host::State::starting) {
    failed_there(host, host->talk.ended(host->how), false);
  } else if (host->state == Host::State::ready && !finishing_) {
    const std::string why = "its " + starter() + " " + host->how;
    handlers_.lost({host->node, kExitRendezvous, why}, starts_again(plan_));
    decide(HostStarts::Ended{host->node, why});
  }
  check_done();
}

void SshStarter::forget_if_over(const HostPtr& host) {
  if (host->over()) std::erase(running_, host);
}

void SshStarter::finish(const std::function<bool(int node)>& linked, std::function<void()> done) {
  finishing_ = true;
  finished_at_ = steady_now();
  next_.arm(kNever);
  done_ = std::move(done);
  for (const auto& host : running_) {
    asio::error_code ec;
    host->in.close(ec);
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
      if (host->over() || host->given_up || (host->told && silent < kSilent)) continue;
      if (host->told) {
        log_warn("the {} of host {} {} and shows nothing; {}", starter(), host_at(host->node).name,
                 host->running ? "does not end" : "has left its output open",
                 host->running ? "ending it" : "not waiting for more");
      }
      give_up_on(host);
    }
    check_done();
    be_patient();
  });
}

void SshStarter::give_up_on(const HostPtr& host) {
  host->given_up = true;  // do not wait for other processes that hold its outputs
  if (host->running) ::kill(host->pid, SIGKILL);
}

void SshStarter::check_done() {
  if (!done_) return;
  const bool all = std::all_of(running_.begin(), running_.end(),
                               [](const HostPtr& host) { return host->over(); });
  if (all) asio::post(loop_, std::exchange(done_, nullptr));
}

}  // namespace dlaunch
