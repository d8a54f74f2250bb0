#include "launcher/process/process_tree.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "base/unique_fd.h"

using namespace dlaunch;

namespace {

bool has_pid(const std::vector<pid_t>& pids, pid_t pid) {
  return std::find(pids.begin(), pids.end(), pid) != pids.end();
}

[[noreturn]] void tell_and_wait(int writing) {
  const pid_t self = ::getpid();
  [[maybe_unused]] const auto written = ::write(writing, &self, sizeof self);
  while (true) ::pause();
}

// A child, a grandchild that leads its own session, and an orphan of a double fork; all ignore what
// can be ignored. Returns their pids once all three run.
std::vector<pid_t> make_family() {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  const pid_t top = ::getpid();
  for (const bool orphan : {false, true}) {
    const pid_t pid = ::fork();
    if (pid != 0) continue;
    ::signal(SIGTERM, SIG_IGN);
    if (::fork() == 0) {
      ::setsid();
      // While it is handed on, a look finds it neither with its parent nor with us.
      while (orphan && ::getppid() != top) ::usleep(1000);
      tell_and_wait(ends[1]);
    }
    if (orphan) ::_exit(0);
    tell_and_wait(ends[1]);
  }
  std::vector<pid_t> pids(3);
  for (auto& pid : pids) REQUIRE(::read(ends[0], &pid, sizeof pid) == sizeof pid);
  return pids;
}

// It gives up after a while, in which a machine that is busy may not have let it do much.
bool kills_all() { return kill_descendants() || kill_descendants(); }

// Ends two cleaners, one of which follows its SIGTERM. False: that one was killed before it had
// ended by itself.
bool cleaner_ends() {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  for (const bool follows : {true, false}) {
    if (::fork() != 0) continue;
    ::sigprocmask(SIG_BLOCK, &end, nullptr);
    ::prctl(PR_SET_NAME, kCleanerName);
    [[maybe_unused]] auto written = ::write(ends[1], "r", 1);
    if (follows) ::raise(SIGSTOP);
    int signal = 0;
    while (::sigwait(&end, &signal) != 0 || !follows) {
    }
    ::usleep(20'000);
    written = ::write(ends[1], "c", 1);
    ::_exit(0);
  }
  char said[2] = "";
  for (int i = 0; i < 2; ++i) REQUIRE(::read(ends[0], said, 1) == 1);
  CHECK(kills_all());
  CHECK(descendants_of(::getpid()).empty());
  pollfd heard{ends[0], POLLIN, 0};
  if (::poll(&heard, 1, 0) == 0) return false;
  REQUIRE(::read(ends[0], said, 2) == 1);
  CHECK(said[0] == 'c');
  return true;
}

}  // namespace

TEST_CASE("descendants are found and killed wherever they have moved, and all are reaped") {
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  REQUIRE(kills_all());  // of earlier cases
  CHECK(descendants_of(::getpid()).empty());
  const auto family = make_family();
  const auto found = descendants_of(::getpid());
  for (const pid_t pid : family) CHECK(has_pid(found, pid));
  CHECK_FALSE(has_pid(found, ::getpid()));

  CHECK(kills_all());
  for (const pid_t pid : family) CHECK(::kill(pid, 0) == -1);  // not even a zombie
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_CASE("a tree that keeps forking is killed completely") {
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  if (::fork() == 0) {
    // Each generation leaves the next one behind, as a daemon does.
    while (true) {
      const pid_t pid = ::fork();
      if (pid > 0) ::_exit(0);
      if (pid == 0) ::usleep(500);
    }
  }
  CHECK(kills_all());
  CHECK(descendants_of(::getpid()).empty());
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_CASE("a cleaner has time to end by itself, but not for ever") {
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  // kill_descendants() kills a cleaner that does not run for a second. Such a try does not count.
  bool ended = false;
  for (int i = 0; i < 5 && !ended; ++i) ended = cleaner_ends();
  CHECK(ended);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_CASE("a process that has ended, or is gone, is ending; one that lives is not") {
  CHECK_FALSE(is_ending(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  CHECK(is_ending(child));
  ::waitpid(child, nullptr, 0);
  CHECK(is_ending(child));
}

TEST_CASE("the use of a process: memory now, and CPU time that only grows") {
  const auto before = use_of_process(::getpid());
  REQUIRE(before);
  CHECK(before->memory > 1 << 20);
  const auto goes_on = [&] {
    const auto now = use_of_process(::getpid());
    REQUIRE(now);
    CHECK(now->cpu >= before->cpu);
    return now->cpu == before->cpu;
  };
  while (goes_on()) continue;  // a clock tick of work
  CHECK_FALSE(use_of_process(0));
}

TEST_CASE("without processes there is nothing to kill") { CHECK(kill_descendants()); }

TEST_CASE("what delays the end of a process") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[1]);
    // The parent sleeps in vfork() until its child ends.
    if (::vfork() == 0) {
      pollfd closed{ends[0], 0, 0};
      ::poll(&closed, 1, -1);
    }
    ::_exit(0);
  }
  while (!what_delays_end(pid).starts_with("an uninterruptible sleep")) ::usleep(1000);
  writing.reset();
  CHECK(::waitpid(pid, nullptr, 0) == pid);
  CHECK(what_delays_end(pid).empty());
}
