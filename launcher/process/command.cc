#include "launcher/process/command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>

#include "base/signal_name.h"
#include "base/units.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/spawn.h"

extern char** environ;

namespace dlaunch {
namespace {

constexpr std::size_t kMaxPrinted = 1 << 20;

}  // namespace

// Lives until its process has been reaped, which may be later than the call's end.
struct Command::Run : std::enable_shared_from_this<Run> {
  Run(asio::io_context& loop, std::set<pid_t>& all)
      : helpers(all), output(loop), exited(loop), timer(loop) {}

  void read();
  void watch();
  void limit(Duration after);
  void kill_group() const {
    if (pid >= 0) ::kill(-pid, SIGKILL);
  }
  // Kills those in sessions of their own first: after its end they can no longer be attributed.
  void kill_all() const {
    if (pid >= 0) kill_descendants_of(pid);
    kill_group();
  }
  void check_over() {
    if (pid < 0 && !output.is_open()) finish();
  }
  void finish();

  std::set<pid_t>& helpers;
  asio::posix::stream_descriptor output, exited;
  asio::steady_timer timer;
  pid_t pid = -1;  // while it runs
  End end;
  std::function<void(const End&)> done;  // empty: already called
};

void Command::Run::read() {
  const auto ready = [self = shared_from_this()](asio::error_code ec) {
    if (ec || !self->output.is_open()) return;
    char bytes[4096];
    const ssize_t size = ::read(self->output.native_handle(), bytes, sizeof bytes);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return self->read();
    if (size > 0 && self->end.text.size() <= kMaxPrinted) {
      self->end.text.append(bytes, static_cast<std::size_t>(size));
      return self->read();
    }
    self->output.close(ec);
    self->check_over();
  };
  output.async_wait(asio::posix::stream_descriptor::wait_read, ready);
}

void Command::Run::watch() {
  const auto ready = [self = shared_from_this()](asio::error_code ec) {
    if (ec || self->pid < 0) return;
    siginfo_t info{};
    const int found = ::waitid(P_PID, static_cast<id_t>(self->pid), &info, WEXITED | WNOHANG);
    if (found == 0 && info.si_pid == 0) return self->watch();
    self->kill_group();  // its leftovers would keep its output open
    self->helpers.erase(std::exchange(self->pid, -1));
    self->end.status = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    if (found != 0) self->end.status = -SIGKILL;  // killed and reaped with all our descendants
    self->exited.close(ec);
    self->check_over();
  };
  exited.async_wait(asio::posix::stream_descriptor::wait_read, ready);
}

void Command::Run::limit(Duration after) {
  timer.expires_after(after);
  timer.async_wait([self = shared_from_this()](asio::error_code ec) {
    if (ec) return;
    self->end.too_late = true;
    self->kill_all();
    self->finish();
  });
}

void Command::Run::finish() {
  asio::error_code ec;
  if (output.is_open()) output.close(ec);
  timer.cancel();
  if (const auto tell = std::exchange(done, nullptr)) tell(end);
}

void Command::stop() {
  if (!run_) return;
  run_->done = nullptr;
  run_->kill_all();
  run_->finish();
}

bool Command::runs() const { return run_ && run_->pid >= 0; }

Result<void> Command::run(const Request& request, std::function<void(const End&)> done) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe for a command", errno);
  UniqueFd reading(ends[0]);
  const UniqueFd writing(ends[1]);
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) return errno_error("open /dev/null", errno);
  SpawnRequest asks{.path = request.argv.front(), .argv = request.argv, .env = request.env};
  asks.in = null.get();
  asks.out = writing.get();
  if (request.keep_errors) asks.err = writing.get();
  auto spawned = spawn_helper(std::move(asks));
  if (!spawned) return spawned.error();
  run_ = std::make_shared<Run>(loop_, helpers_);
  run_->pid = spawned->pid;
  run_->done = std::move(done);
  helpers_.insert(spawned->pid);
  asio::error_code ec;
  ::fcntl(reading.get(), F_SETFL, O_NONBLOCK);
  run_->output.assign(reading.release(), ec);
  run_->exited.assign(spawned->pidfd.release(), ec);
  run_->read();
  run_->watch();
  run_->limit(request.limit);
  return {};
}

Result<Command::End> run_command(const Command::Request& request) {
  asio::io_context loop;
  std::set<pid_t> helpers;
  Command command(loop, helpers);
  Command::End end;
  bool told = false;
  const auto ran = command.run(request, [&](const Command::End& how) {
    end = how;
    told = true;
  });
  if (!ran) return ran.error();
  while (!told) loop.run_one();  // not until it can be reaped: a driver may hold it
  return end;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** item = environ; *item != nullptr; ++item) all.emplace_back(*item);
  return all;
}

Command::Request shell_command(const std::string& line, Duration limit) {
  return {.argv = {"/bin/sh", "-c", line}, .env = own_environment(), .limit = limit};
}

std::string describe(const Command::End& end, Duration limit) {
  if (end.too_late) return "took longer than " + format_duration(limit);
  if (end.status > 0) return fmt::format("ended with exit code {}", end.status);
  return end.status < 0 ? "was ended by " + describe_signal(-end.status) : "";
}

}  // namespace dlaunch
