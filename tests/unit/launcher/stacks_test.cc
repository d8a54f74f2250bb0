#include "launcher/node/watch/stacks.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <doctest/doctest.h>

#include "base/unique_fd.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/spawn.h"
#include "tests/unit/process_state.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace target {

// What the processes that are looked at do. Each tells that it is there, and stays.
std::atomic<unsigned> turns{0};
int counted = 0;

void tell(int pipe, int what = 0) {
  [[maybe_unused]] const auto written = ::write(pipe, &what, sizeof what);
}

[[gnu::noinline]] void waits_for_data(int pipe) {
  tell(pipe);
  while (true) {
    ::pause();
    turns = turns + 1;
  }
}

[[gnu::noinline]] void turns_round_and_round(int pipe) {
  tell(pipe);
  while (true) turns = turns + 1;
}

[[gnu::noinline]] void waits_in_a_thread(int pipe) {
  std::thread helper([pipe] {
    ::pthread_setname_np(::pthread_self(), "helper )x(");
    turns_round_and_round(pipe);
  });
  helper.join();
  turns = turns + 1;
}

void count(int) { ++counted; }

// Tells how many signals have come once SIGTERM comes.
[[gnu::noinline]] void counts_signals(int pipe) {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &ending, nullptr);
  ::signal(SIGRTMIN, count);
  tell(pipe);
  sigset_t pending;
  do {
    turns = turns + 1;
    ::sigpending(&pending);
  } while (sigismember(&pending, SIGTERM) == 0);
  tell(pipe, counted);
  ::_exit(0);
}

}  // namespace target

namespace {

class Process {
 public:
  explicit Process(const std::function<void(int)>& what) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reading.reset(ends[0]);
    const UniqueFd writing(ends[1]);
    pid = ::fork();
    if (pid == 0) {
      what(writing.get());
      ::_exit(0);
    }
    CHECK(told() == 0);
  }
  ~Process() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  int told() const {
    int what = -1;
    REQUIRE(::read(reading.get(), &what, sizeof what) == sizeof what);
    return what;
  }
  char state() const { return state_of(pid); }

  pid_t pid;
  UniqueFd reading;
};

std::string stacks(pid_t pid, Duration limit = 60s) {
  asio::io_context loop;
  std::string text;
  int calls = 0;
  dump_stacks(
      loop, pid,
      [&](std::vector<std::string> lines) {
        ++calls;
        for (const auto& line : lines) text += line + "\n";
      },
      limit);
  CHECK(calls == 0);
  loop.run();
  CHECK(calls == 1);
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  const bool there = text.find(part) != std::string::npos;
  if (!there) MESSAGE(text);
  return there;
}

template <class Condition>
bool comes_true(Condition condition) {
  const auto end = steady_now() + 30s;
  while (!condition()) {
    if (steady_now() > end) return false;
    ::usleep(1000);
  }
  return true;
}

// Asks again where a process has not come to hold in time, as on a machine that is busy.
std::string stacks_of_held(pid_t pid) {
  std::string text;
  comes_true([&] {
    text = stacks(pid);
    return text.find("it sleeps uninterruptibly") == std::string::npos;
  });
  return text;
}

bool has_libdw() { return stacks(::getpid()).find("without libdw") == std::string::npos; }

}  // namespace

TEST_CASE("a waiting process is shown with function and line, and continues to wait") {
  const Process process(target::waits_for_data);
  REQUIRE(comes_true([&] { return process.state() == 'S'; }));  // it has come to its pause()
  const auto text = stacks_of_held(process.pid);
  siginfo_t ended{};
  ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT);
  CHECK(ended.si_pid == 0);  // nothing is left to be reaped
  if (!has_libdw()) return;
  CHECK(contains(text, "thread " + std::to_string(process.pid) + " \""));
  CHECK(contains(text, "#0 "));
  CHECK(contains(text, "pause"));
  CHECK(contains(text, " target::waits_for_data(int) at "));
  CHECK(contains(text, "stacks_test.cc:"));
  CHECK(contains(text, " main"));
  CHECK(comes_true([&] { return process.state() == 'S'; }));
}

TEST_CASE("all threads of a busy process are shown, and it continues") {
  const Process process(target::waits_in_a_thread);
  REQUIRE(comes_true([&] { return process.state() == 'S'; }));  // it has come to its join()
  const auto text = stacks_of_held(process.pid);
  if (!has_libdw()) return;
  CHECK(contains(text, "\"helper )x(\", running:"));
  CHECK(contains(text, " target::turns_round_and_round(int) at "));
  CHECK(contains(text, " target::waits_in_a_thread(int) at "));
  CHECK(comes_true([&] { return process.state() == 'S'; }));
}

TEST_CASE("a stopped process is shown and stays stopped") {
  const Process process(target::turns_round_and_round);
  ::kill(process.pid, SIGSTOP);
  REQUIRE(comes_true([&] { return process.state() == 'T'; }));
  for (int i = 0; i < 3; ++i) {
    const auto text = stacks_of_held(process.pid);
    if (!has_libdw()) return;
    CHECK(contains(text, ", stopped:"));
    CHECK(contains(text, " target::turns_round_and_round(int) at "));
    // The kernel stops it again a moment after the tracer has let it go.
    CHECK(comes_true([&] { return process.state() == 'T'; }));
  }
  ::kill(process.pid, SIGCONT);
  CHECK(comes_true([&] { return process.state() == 'R'; }));
}

TEST_CASE("no signal gets lost while stacks are read") {
  const Process process(target::counts_signals);
  constexpr int kSignals = 400;
  const pid_t sender = ::fork();
  if (sender == 0) {
    for (int i = 0; i < kSignals; ++i) {
      ::sigqueue(process.pid, SIGRTMIN, {});
      ::usleep(200);
    }
    ::_exit(0);
  }
  do {
    (void)stacks(process.pid);
  } while (::waitpid(sender, nullptr, WNOHANG) == 0);
  ::kill(process.pid, SIGTERM);
  CHECK(process.told() == kSignals);
}

TEST_CASE("a process whose stacks we read is never taken for one in a debugger") {
  const Process process(target::waits_for_data);
  constexpr int kReads = kSanitized ? 50 : 500;
  const pid_t reader = ::fork();
  if (reader == 0) {
    for (int i = 0; i < kReads; ++i) {
      const pid_t tracer = ::fork();
      if (tracer == 0) {
        ::ptrace(PTRACE_SEIZE, process.pid, nullptr, nullptr);
        ::_exit(0);
      }
      ::waitpid(tracer, nullptr, 0);
    }
    ::_exit(0);
  }
  int taken = 0;
  do {
    taken += state_of_process(process.pid) == ProcessState::traced ? 1 : 0;
  } while (::waitpid(reader, nullptr, WNOHANG) == 0);
  CHECK(taken == 0);
}

TEST_CASE("a traced process is not touched, and its tracer is named") {
  const Process process(target::waits_for_data);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  const pid_t tracer = ::fork();
  if (tracer == 0) {
    target::tell(writing.get(), ::ptrace(PTRACE_SEIZE, process.pid, nullptr, nullptr) == 0 ? 1 : 0);
    while (true) ::pause();
  }
  int traces = 0;
  REQUIRE(::read(reading.get(), &traces, sizeof traces) == sizeof traces);
  CHECK(traces == 1);
  const auto text = stacks(process.pid);
  CHECK(contains(text, "not looked at: "));
  CHECK(contains(text, "(pid " + std::to_string(tracer) + ") is tracing it"));
  CHECK_FALSE(text.find("waits_for_data") != std::string::npos);
  ::kill(tracer, SIGKILL);
  ::waitpid(tracer, nullptr, 0);
}

namespace target {

// As a shell does.
[[gnu::noinline]] void waits_for_a_child(int pipe) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    waits_for_data(pipe);
  }
  ::waitpid(child, nullptr, 0);
  turns = turns + 1;
}

}  // namespace target

TEST_CASE("child processes are shown, too, because a process may wait for them") {
  const Process process(target::waits_for_a_child);
  const auto text = stacks_of_held(process.pid);
  const auto child = text.find("below it unit_launcher (pid ");
  CHECK(child != text.npos);
  if (!has_libdw()) return;
  CHECK(contains(text.substr(0, child), " target::waits_for_a_child(int) at "));
  CHECK(contains(text.substr(child), " target::waits_for_data(int) at "));
}

TEST_CASE("a process that has ended is reported in one line") {
  pid_t pid = 0;
  { pid = Process(target::waits_for_data).pid; }
  CHECK(stacks(pid) == "there is no process " + std::to_string(pid) + "\n");
}

namespace {

// A Python program that waits in a function of its own.
void runs_python(int pipe) {
  ::dup2(pipe, 1);
  ::execlp("python3", "python3", "-c",
           "import os, time\n"
           "def waits_in_python():\n"
           "    os.write(1, bytes(4))\n"
           "    while True: time.sleep(1000)\n"
           "waits_in_python()\n",
           nullptr);
  target::tell(pipe, 1);
}

bool is_there(const char* program) { return find_program(program, ::getenv("PATH")).has_value(); }

}  // namespace

TEST_CASE("py-spy shows a Python program, also a stopped one; without py-spy it is recommended") {
  if (!is_there("python3")) return;
  const Process process(runs_python);
  for (const char expected : {'S', 'T'}) {
    if (expected == 'T') ::kill(process.pid, SIGSTOP);
    REQUIRE(comes_true([&] { return process.state() == expected; }));
    const auto text = stacks(process.pid);
    CHECK(
        contains(text, is_there("py-spy") ? "waits_in_python (<string>:4)" : "pip install py-spy"));
    CHECK(comes_true([&] { return process.state() == expected; }));
  }
}

TEST_CASE("py-spy is found beside the Python of a worker, and in the worker's own PATH") {
  if (!is_there("python3")) return;
  const TempFolder folder;
  std::ofstream(folder.path / "py-spy") << "#!/bin/sh\necho this is py-spy\n";
  fs::permissions(folder.path / "py-spy", fs::perms::owner_all);
  const std::string path = ::getenv("PATH");
  const std::string python = folder.path / "python3";
  // What is in PATH may be a script.
  const std::string real =
      fs::read_symlink("/proc/" + std::to_string(Process(runs_python).pid) + "/exe");
  fs::create_symlink(real, python);
  // Neither folder has a py-spy, so that ours is the only one.
  const std::string bare = folder.path / "bare";
  for (const bool beside : {true, false}) {
    CAPTURE(beside);
    const Process process([&](int pipe) {
      ::dup2(pipe, 1);
      ::setenv("PATH", beside ? bare.c_str() : folder.path.c_str(), 1);
      ::execl(beside ? python.c_str() : real.c_str(), beside ? python.c_str() : "python3", "-c",
              "import os, time; os.write(1, bytes(4)); time.sleep(1000)", nullptr);
      target::tell(pipe, 1);
    });
    REQUIRE(comes_true([&] { return process.state() == 'S'; }));
    ::setenv("PATH", bare.c_str(), 1);
    const auto text = stacks(process.pid);
    ::setenv("PATH", path.c_str(), 1);
    CHECK(contains(text, "this is py-spy"));
  }
}

TEST_CASE("a look that takes too long is ended, with its processes") {
  if (!is_there("python3")) return;
  const TempFolder folder;
  std::ofstream(folder.path / "py-spy") << "#!/bin/sh\necho $$ >&2\nexec sleep 1000\n";
  fs::permissions(folder.path / "py-spy", fs::perms::owner_all);
  const std::string path = ::getenv("PATH");
  const Process process(runs_python);
  ::setenv("PATH", (folder.path.string() + ":" + path).c_str(), 1);
  const auto text = stacks(process.pid, 300ms);
  ::setenv("PATH", path.c_str(), 1);
  CHECK(contains(text, "this took too long, and dlaunch stopped it"));
  if (const int sleeper = std::atoi(text.c_str()); sleeper > 0) {
    CHECK(comes_true([&] { return state_of(sleeper) == 'Z'; }));
  }
}
