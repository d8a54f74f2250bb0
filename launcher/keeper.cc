#include "launcher/keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/result.h"
#include "launcher/process_tree.h"

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
  for (const int signal : kRelayed) ::signal(signal, SIG_IGN);
  for (const int signal : {SIGTTIN, SIGTTOU, SIGPIPE}) ::signal(signal, SIG_IGN);
  ::sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  ::_exit(agent(std::move(signals), original));
}

// Reaps what has ended; the agent's wait status once it is among them.
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
  // The agent has its own way of stopping the workers; the shell wants to see its job stopped.
  if (signal == SIGTSTP) ::raise(SIGSTOP);
}

int exit_code_of(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  log_error("the agent process was lost ({}); all workers were killed",
            ::strsignal(WTERMSIG(status)));
  return kExitInternal;
}

}  // namespace

int run_kept(const std::function<int(UniqueFd signals, const OriginalSignals&)>& agent,
             const std::function<void()>& cleanup) {
  const OriginalSignals original = note_original();
  sigset_t waited, old_mask;
  sigemptyset(&waited);
  for (const int signal : kRelayed) {
    if (signal != SIGHUP || !original.hangup_ignored) sigaddset(&waited, signal);
  }
  sigaddset(&waited, SIGCHLD);
  ::signal(SIGCHLD, SIG_DFL);  // an ignored SIGCHLD, inherited, would reap behind our back
  // Blocked, so that sigwaitinfo gets them even where they were ignored (a script's background
  // job).
  ::sigprocmask(SIG_BLOCK, &waited, &old_mask);

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    log_error("{}", errno_error("pipe", errno).what);
    return kExitSystem;
  }
  UniqueFd reading(ends[0]), writing(ends[1]);
  ::fcntl(writing.get(), F_SETFL, O_NONBLOCK);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
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
  std::optional<int> status;
  while (!status) {
    const int signal = ::sigwaitinfo(&waited, nullptr);
    if (signal == SIGCHLD)
      status = reap(pid);
    else if (signal > 0)
      relay(writing.get(), signal);
  }
  if (WIFSIGNALED(*status)) ::signal(SIGPIPE, SIG_IGN);
  kill_descendants();
  cleanup();
  return exit_code_of(*status);
}

}  // namespace dlaunch
