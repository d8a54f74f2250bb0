#include "launcher/host_discovery.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/units.h"
#include "launcher/process_tree.h"
#include "launcher/report.h"
#include "launcher/spawn.h"

extern char** environ;

namespace dlaunch {
namespace {

constexpr std::size_t kMaxText = 1 << 20;

}  // namespace

HostDiscovery::HostDiscovery(asio::io_context& loop, std::string script, std::set<pid_t>& helpers,
                             Listener listener, const Times& times)
    : loop_(loop),
      script_(std::move(script)),
      helpers_(helpers),
      listener_(std::move(listener)),
      times_(times),
      output_(loop),
      exited_(loop),
      timer_(loop) {}

HostDiscovery::~HostDiscovery() {
  if (pid_ < 0) return;
  end_script();
  ::waitpid(pid_, nullptr, 0);
  helpers_.erase(pid_);
}

void HostDiscovery::ask() {
  text_.clear();
  too_late_ = false;
  if (auto ok = run(); !ok) {
    complain(ok.error().what);
    return ask_later();
  }
  read();
  watch();
  limit();
}

Result<void> HostDiscovery::run() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe for a script", errno);
  UniqueFd reading(ends[0]);
  const UniqueFd writing(ends[1]);
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) return errno_error("open /dev/null", errno);
  SpawnRequest request{.path = "/bin/sh", .argv = {"sh", "-c", script_}};
  for (char** item = environ; *item != nullptr; ++item) request.env.emplace_back(*item);
  request.in = null.get();
  request.out = writing.get();
  ::getrlimit(RLIMIT_NOFILE, &request.open_files);
  Spawned spawned;
  if (const auto error = spawn(request, spawned); error.stage != Stage::none) {
    return Error{.what = error.what, .os_errno = error.os_errno};
  }
  pid_ = spawned.pid;
  helpers_.insert(pid_);
  asio::error_code ec;
  ::fcntl(reading.get(), F_SETFL, O_NONBLOCK);
  output_.assign(reading.release(), ec);
  exited_.assign(spawned.pidfd.release(), ec);
  return {};
}

void HostDiscovery::read() {
  output_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code ec) {
    if (ec == asio::error::operation_aborted) return;
    char bytes[4096];
    const ssize_t size = ::read(output_.native_handle(), bytes, sizeof bytes);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return read();
    if (size > 0 && text_.size() <= kMaxText) {
      text_.append(bytes, static_cast<std::size_t>(size));
      return read();
    }
    output_.close(ec);
    check_over();
  });
}

void HostDiscovery::watch() {
  exited_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code ec) {
    if (ec == asio::error::operation_aborted) return;
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
    if (info.si_pid == 0) return watch();
    ::kill(-pid_, SIGKILL);  // what it left in its group would keep its output open
    helpers_.erase(std::exchange(pid_, -1));
    status_ = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    exited_.close(ec);
    check_over();
  });
}

void HostDiscovery::limit() {
  timer_.expires_after(times_.patience);
  timer_.async_wait([this](asio::error_code error) {
    if (error) return;
    too_late_ = true;
    if (pid_ >= 0) end_script();
    asio::error_code ec;
    if (output_.is_open()) output_.close(ec);
    check_over();
  });
}

// Those in sessions of their own first: once it has ended nobody knows whose they are.
void HostDiscovery::end_script() {
  kill_descendants_of(pid_);
  ::kill(-pid_, SIGKILL);
}

void HostDiscovery::check_over() {
  if (pid_ >= 0 || output_.is_open()) return;
  judge();
  ask_later();
}

void HostDiscovery::judge() {
  if (too_late_) return complain("took longer than " + format_duration(times_.patience));
  if (status_ > 0) return complain(fmt::format("ended with exit code {}", status_));
  if (status_ < 0) return complain("was ended by " + describe_signal(-status_));
  auto hosts = parse_hostfile(text_, "line");
  if (!hosts) return complain("printed something else than hosts: " + hosts.error().what);
  told_.clear();
  for (HostEntry& host : *hosts) host.line = 0;
  if (*hosts == last_) return;
  last_ = std::move(*hosts);
  listener_(last_);
}

void HostDiscovery::complain(const std::string& why) {
  if (std::exchange(told_, why) == why) return;
  log_warn("the hosts stay as they are: --host-discovery-script '{}' {}", script_, why);
}

void HostDiscovery::ask_later() {
  timer_.expires_after(times_.period);
  timer_.async_wait([this](asio::error_code error) {
    if (!error) ask();
  });
}

}  // namespace dlaunch
