#include "launcher/lead/start/host_login.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <asio/buffer.hpp>
#include <fmt/format.h>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/signal_name.h"
#include "launcher/lead/start/ssh_login.h"
#include "launcher/process/command.h"

namespace dlaunch {
namespace {

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

HostLogin::HostLogin(LoginTools& tools, User& user, const std::string& starter, std::string host)
    : tools_(tools),
      user_(user),
      host_(std::move(host)),
      in_(tools.loop),
      outputs_{Descriptor(tools.loop), Descriptor(tools.loop)},
      exited_(tools.loop),
      talk_(starter) {}

Result<void> HostLogin::start(SpawnRequest request, std::string order) {
  std::array<Pipe, 3> pipes;
  for (auto& pipe : pipes) {
    auto made = make_pipe();
    if (!made) return made.error();
    pipe = std::move(*made);
  }
  request.in = pipes[0].reading.get();
  request.out = pipes[1].writing.get();
  request.err = pipes[2].writing.get();
  auto spawned = spawn_helper(std::move(request));
  if (!spawned) return spawned.error();
  pid_ = spawned->pid;
  running_ = true;
  open_outputs_ = 2;
  tools_.helpers.insert(spawned->pid);
  for (const int fd : {pipes[0].writing.get(), pipes[1].reading.get(), pipes[2].reading.get()}) {
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  asio::error_code ec;
  in_.assign(pipes[0].writing.release(), ec);
  output(OutputStream::out).assign(pipes[1].reading.release(), ec);
  output(OutputStream::err).assign(pipes[2].reading.release(), ec);
  exited_.assign(spawned->pidfd.release(), ec);
  const Self self = shared_from_this();
  watch(self);
  for (const OutputStream kind : kOutputStreams) read(self, kind);
  order_ = std::move(order);
  send(order_);
  return {};
}

void HostLogin::watch(const Self& self) {
  exited_.async_wait(Descriptor::wait_read, [this, self](asio::error_code ec) {
    if (ec || !running_) return;
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0) {
      return;  // kill_descendants() has reaped it: the job is over
    }
    if (info.si_pid == 0) return watch(self);
    tools_.helpers.erase(pid_);
    running_ = false;
    how_ = describe_end(info);
    close_in();
    exited_.close(ec);
    tell_if_over();
  });
}

// -- Its output until it is ready

void HostLogin::read(const Self& self, OutputStream kind) {
  output(kind).async_wait(Descriptor::wait_read, [this, self, kind](asio::error_code) {
    Descriptor& stream = output(kind);
    if (!stream.is_open()) return;  // released
    char bytes[4096];
    const ssize_t size = ::read(stream.native_handle(), bytes, sizeof bytes);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
      asio::error_code ec;
      stream.close(ec);
      return output_ended();
    }
    const std::string_view got(bytes, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    kind == OutputStream::err ? talk_.said(got) : heard(got);
    if (stream.is_open()) read(self, kind);
  });
}

void HostLogin::heard(std::string_view bytes) {
  for (const auto& action : talk_.heard(bytes)) {
    if (state != State::starting) return;
    std::visit([&](const auto& what) { act(what); }, action);
  }
}

void HostLogin::act(const SshTalk::Push&) {
  if (tools_.pushed.empty()) {
    auto content = tools_.binary->read();
    if (!content) return act(SshTalk::Failed{kExitSystem, content.error().what});
    tools_.pushed = std::move(*content);
  }
  log_info("pushing dlaunch to {}", host_);
  send(tools_.pushed);
}

void HostLogin::act(const SshTalk::Ready& ready) {
  state = State::ready;
  order_.clear();  // it has the secret
  user_.on_ready(*this, ready);
}

void HostLogin::act(const SshTalk::Failed& failed) { user_.on_failed(*this, failed, true); }

UniqueFd HostLogin::release(OutputStream kind) {
  Descriptor& stream = output(kind);
  return stream.is_open() ? UniqueFd(stream.release()) : UniqueFd();
}

void HostLogin::output_ended() {
  --open_outputs_;
  if (pid_ < 0 && open_outputs_ == 0) {
    running_ = false;
    how_ = "has closed its connection";
  }
  tell_if_over();
}

// -- Messages to it

void HostLogin::send(std::string_view bytes) {
  const bool idle = unsent_.empty();
  unsent_ += bytes;
  if (idle) write(shared_from_this());
}

void HostLogin::write(const Self& self) {
  in_.async_write_some(asio::buffer(unsent_.data() + sent_, unsent_.size() - sent_),
                       [this, self](asio::error_code ec, std::size_t size) {
                         sent_ += size;
                         if (ec || sent_ == unsent_.size()) {
                           unsent_.clear();
                           sent_ = 0;
                         } else {
                           write(self);
                         }
                       });
}

// -- Ends

void HostLogin::close_in() {
  asio::error_code ec;
  // A connection is also open as an output.
  if (pid_ < 0 && in_.is_open()) ::shutdown(in_.native_handle(), SHUT_WR);
  in_.close(ec);
}

void HostLogin::tell_if_over() {
  if (over()) user_.on_over(*this);
}

void HostLogin::give_up() {
  given_up_ = true;
  if (running_ && pid_ > 0) ::kill(pid_, SIGKILL);
  if (pid_ > 0) return;
  running_ = false;
  close_in();
}

// -- Without a process

void HostLogin::await_outputs() {
  running_ = true;
  open_outputs_ = 2;
}

void HostLogin::have_input(UniqueFd fd) {
  asio::error_code ec;
  in_.assign(fd.get(), ec);
  if (!ec) fd.release();
}

SpawnRequest ssh_request(const std::string& path, const std::vector<std::string>& ssh,
                         const HostPlan& host, const SameBinary& binary, std::size_t order_size) {
  SpawnRequest request;
  request.path = path;
  request.argv = ssh_arguments(ssh, host, binary, order_size);
  if (is_ssh(path)) {
    request.path = "/proc/self/exe";
    const std::vector<std::string> by_ourselves = {"dlaunch", kSshLoginWord, path};
    request.argv.insert(request.argv.begin(), by_ourselves.begin(), by_ourselves.end());
  }
  request.env = own_environment();
  return request;
}

Result<std::string> find_starter(const std::string& program) {
  const char* path = ::getenv("PATH");
  return find_program(program, path != nullptr ? path : "/usr/bin:/bin");
}

}  // namespace dlaunch
