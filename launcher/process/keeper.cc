#include "launcher/process/keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/signal_name.h"
#include "launcher/process/process_tree.h"
#include "rendezvous/tls_tunnel.h"

namespace dlaunch {
namespace {

constexpr int kRelayed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

OriginalSignals note_original() {
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  return {.hangup_ignored = hangup.sa_handler == SIG_IGN};
}

[[noreturn]] void be_agent(const std::function<int(UniqueFd, const OriginalSignals&)>& agent,
                           UniqueFd signals, const OriginalSignals& original,
                           const sigset_t& old_mask) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (::isatty(STDIN_FILENO) == 0) ::setpgid(0, 0);
  for (const int signal : kRelayed) ::signal(signal, SIG_IGN);
  for (const int signal : {SIGTTIN, SIGTTOU, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  const int code = agent(std::move(signals), original);
  finish_tunnels();
  ::_exit(code);
}

// Reaps ended children; returns the agent's wait status once it is among them.
std::optional<int> reap(pid_t agent) {
  std::optional<int> ended;
  int status = 0;
  while (true) {
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return ended;
    if (pid == agent) ended = status;
  }
}

void relay(int pipe, int signal) {
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto written = ::write(pipe, &byte, 1);
  // The agent stops the workers in its own way; the shell wants to see its job stopped.
  if (signal == SIGTSTP) ::raise(SIGSTOP);
}

// The agent may have left a row at the bottom of the terminal, without a newline.
void erase_row() {
  const char* const terminal = ::getenv("TERM");
  if (::isatty(STDERR_FILENO) == 0 || terminal == nullptr) return;
  constexpr std::string_view kErase = "\r\x1b[J";
  if (std::string_view(terminal) == "dumb") return;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kErase.data(), kErase.size());
}

int exit_code_of(int status, bool all_killed) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const bool killed = WTERMSIG(status) == SIGKILL;
  erase_row();
  log_error("dlaunch's agent was lost ({}{}); {}", describe_signal(WTERMSIG(status)),
            killed ? ", by a person, or by the kernel for lack of memory: see dmesg" : "",
            all_killed ? "all workers were killed" : "not every worker could be killed");
  return kExitInternal;
}

}  // namespace

Result<void> open_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is the present one.
    if (::open("/dev/null", O_RDWR) != fd) return errno_error("open /dev/null", errno);
  }
  return {};
}

int run_kept(const std::function<int(UniqueFd signals, const OriginalSignals&)>& agent,
             const std::function<void()>& cleanup) {
  const OriginalSignals original = note_original();
  sigset_t waited, old_mask;
  sigemptyset(&waited);
  for (const int signal : kRelayed) {
    if (signal != SIGHUP || !original.hangup_ignored) sigaddset(&waited, signal);
  }
  sigaddset(&waited, SIGCHLD);
  ::signal(SIGCHLD, SIG_DFL);  // with an inherited ignored SIGCHLD the kernel would reap for us
  // Blocked, so that sigwaitinfo gets them even if they were ignored (a script's background job).
  ::sigprocmask(SIG_BLOCK, &waited, &old_mask);

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    log_error("{}", errno_error("pipe", errno).what);
    return kExitSystem;
  }
  UniqueFd reading(ends[0]), writing(ends[1]);
  ::fcntl(writing.get(), F_SETFL, O_NONBLOCK);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // A shell that has become dlaunch by `exec` may have left background jobs, which are not ours as
  // long as their parents live.
  const std::vector<pid_t> not_ours = children();
  const pid_t pid = ::fork();
  if (pid < 0) {
    log_error("{}", errno_error("fork", errno).what);
    return kExitSystem;
  }
  if (pid == 0) {
    writing.reset();
    be_agent(agent, std::move(reading), original, old_mask);
  }
  reading.reset();
  ::signal(SIGPIPE, SIG_IGN);  // the agent, or the reader of our output, may have gone
  std::optional<int> status;
  while (!status) {
    const int signal = ::sigwaitinfo(&waited, nullptr);
    if (signal == SIGCHLD)
      status = reap(pid);
    else if (signal > 0)
      relay(writing.get(), signal);
  }
  const bool all_killed = kill_descendants(not_ours);
  cleanup();
  return exit_code_of(*status, all_killed);
}

}  // namespace dlaunch
