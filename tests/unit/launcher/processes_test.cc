// Workers as processes, and the reports of their ends.
#include "launcher/node/workers/processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>

#include <doctest/doctest.h>

#include "launcher/process/process_tree.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// One worker, a shell.
struct ShellNode {
  explicit ShellNode(const std::string& script) {
    plan.argv = {"sh", "-c", script};
    plan.job_id = "j";
    plan.host = "h";
    plan.output.mode = OutputMode::none;
    starter.emplace(WorkerStarter::make(plan, {}));
    REQUIRE(*starter);
    hub.emplace(loop, plan);
    processes.emplace(loop, *hub, **starter, helpers, 1,
                      Processes::Handlers{.ended = [this](Slot, const WorkerEnd& e) { end = e; },
                                          .child_changed = [] {},
                                          .never_ran = [](Slot, const SpawnError&) {}});
    REQUIRE(processes->start(0, {.worker = 1}).stage == Stage::none);
  }
  const WorkerEnd& wait() {
    const auto by = steady_now() + 30s;  // for a test that hangs
    while (!end && steady_now() < by) loop.run_for(1ms);
    REQUIRE(end);
    return *end;
  }

  Plan plan;
  asio::io_context loop;
  std::optional<Result<WorkerStarter>> starter;
  std::optional<OutputHub> hub;
  std::set<pid_t> helpers;
  std::optional<Processes> processes;
  std::optional<WorkerEnd> end;
};

}  // namespace

TEST_CASE("a signal to a worker that already ends does not count as its cause") {
  ShellNode node("exit 3");
  while (!is_ending(node.processes->pid(0))) ::usleep(1000);
  node.processes->signal(0, SIGTERM);
  CHECK(node.wait().signal_we_sent == 0);
  CHECK(node.wait().exit_code == 3);
}

TEST_CASE("a signal that ends a worker is part of the report of its end") {
  ShellNode node("exec sleep 1000");
  node.processes->signal(0, SIGTERM);
  CHECK(node.wait().signal_we_sent == SIGTERM);
  CHECK(node.wait().signal == SIGTERM);
}

// A child of ours traces it, as when dlaunch reads its stacks.
TEST_CASE("a worker lives as long as a process of its group that we trace just now") {
  REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);  // as a dlaunch that has workers
  ShellNode node("(trap '' TERM; exec sleep 1000) & wait");
  const pid_t shell = node.processes->pid(0);
  pid_t sleeper = 0;
  const auto sleeps = [&] {
    const auto below = descendants_of(shell);
    if (below.size() == 1) sleeper = below[0];
    return sleeper > 0 && name_of_process(sleeper) == "sleep";
  };
  const auto comes = [](const auto& what) {
    for (int i = 0; i < 30'000 && !what(); ++i) ::usleep(1000);
    return what();
  };
  REQUIRE(comes(sleeps));
  node.processes->signal(0, SIGTERM);
  REQUIRE(comes([&] { return is_ending(shell); }));
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t tracer = ::fork();
  if (tracer == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char traces = ::ptrace(PTRACE_SEIZE, sleeper, nullptr, nullptr) == 0 ? 'y' : 'n';
    [[maybe_unused]] const auto said = ::write(ends[1], &traces, 1);
    while (true) ::pause();
  }
  char traces = 'n';
  REQUIRE(::read(ends[0], &traces, 1) == 1);
  for (const int end : ends) ::close(end);
  if (traces == 'n') MESSAGE("left out: the system does not allow tracing");
  node.loop.run_for(300ms);
  CHECK_FALSE(node.end);
  ::kill(tracer, SIGKILL);
  ::waitpid(tracer, nullptr, 0);
  ::kill(sleeper, SIGKILL);
  CHECK(node.wait().signal == SIGTERM);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}
