// Runs a command inside a test host: in the namespaces of the process PID, in the folder FOLDER, in
// its own session. Passes signals on to the command, SIGKILL included; exits with the command's
// exit code, or 128+N after signal N. 125: it could not enter the host. usage: enter PID FOLDER
// COMMAND…
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kNotEntered = 125, kNotRun = 126, kNotFound = 127;

int fail(const char* what, int exit_code) {
  std::fprintf(stderr, "enter: %s: %s\n", what, std::strerror(errno));
  return exit_code;
}

bool join_namespaces_of(pid_t pid) {
  const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  const int kinds = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET;
  return fd >= 0 && ::setns(fd, kinds) == 0 && ::close(fd) == 0;
}

int run(char** command, const sigset_t& mask) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setsid();
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(command[0], command);
  return fail(command[0], errno == ENOENT ? kNotFound : kNotRun);
}

// The command may be stopped and continued: only its end counts.
int relay_signals(pid_t child, const sigset_t& signals) {
  while (true) {
    int signal = 0, status = 0;
    if (::sigwait(&signals, &signal) != 0) continue;
    if (signal != SIGCHLD) {
      ::kill(child, signal);
    } else if (::waitpid(child, &status, WNOHANG) == child) {
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const int pid = std::atoi(argv[1]);
  errno = ESRCH;
  if (pid <= 1 || !join_namespaces_of(pid)) return fail("the host", kNotEntered);
  if (::chdir(argv[2]) != 0) return fail(argv[2], kNotEntered);
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::fork();
  if (child < 0) return fail("fork", kNotEntered);
  return child == 0 ? run(argv + 3, before) : relay_signals(child, all);
}
