// The actions on workers of a host, with a real process.
#include "launcher/node/watch/node_monitor.h"

#include <signal.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launcher/process/process_tree.h"

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

// One worker, that sleeps.
struct SleepingNode {
  explicit SleepingNode(std::vector<std::string> argv = {"sleep", "1000"})
      : plan(sleeper(std::move(argv))) {
    REQUIRE(starter);
    processes.emplace(loop, hub, *starter, helpers, 1,
                      Processes::Handlers{.ended = [this](Slot, const WorkerEnd&) { ended = true; },
                                          .child_changed = [] {},
                                          .never_ran = [](Slot, const SpawnError&) {}});
    REQUIRE(processes->start(0, {.rank = 0, .worker = 1}).stage == Stage::none);
    monitor.emplace(loop, *processes, helpers, [this](const NodeMessage& message) {
      if (const auto* said = std::get_if<NodeRunProgress>(&message)) progress.push_back(*said);
      if (const auto* read = std::get_if<NodeStacks>(&message)) stacks.push_back(*read);
    });
    monitor->begin(Duration::max());
  }
  ~SleepingNode() {
    processes->signal(0, SIGKILL);
    CHECK(comes([this] { return ended; }));
  }
  bool stands() const { return state_of_process(processes->pid(0)) == ProcessState::stopped; }
  // Without the loop, which lets it go on at its time, however late we look.
  bool comes_to_stand() const {
    const auto by = steady_now() + 30s;
    while (!stands() && steady_now() < by) ::usleep(1000);
    return stands();
  }
  // The limit is for a test that hangs.
  bool comes(const std::function<bool()>& what) {
    const auto by = steady_now() + 30s;
    while (!what() && steady_now() < by) loop.run_for(1ms);
    return what();
  }
  static Plan sleeper(std::vector<std::string> argv) {
    Plan plan;
    plan.argv = std::move(argv);
    plan.job_id = "j";
    plan.host = "h";
    plan.output.mode = OutputMode::none;
    return plan;
  }

  const Plan plan;
  asio::io_context loop;
  OutputHub hub{loop, plan};
  Result<WorkerStarter> starter = WorkerStarter::make(plan, {});
  std::set<pid_t> helpers;
  std::optional<Processes> processes;
  std::optional<NodeMonitor> monitor;
  std::vector<NodeRunProgress> progress;
  std::vector<NodeStacks> stacks;
  bool ended = false;
};

}  // namespace

TEST_CASE("two requests for a worker's stacks at once get the same stacks") {
  SleepingNode node;
  node.monitor->on(NodeDump{.request = 1, .slot = 0});
  node.monitor->on(NodeDump{.request = 2, .slot = 0});
  REQUIRE(node.comes([&] { return node.stacks.size() == 2; }));
  CHECK((node.stacks[0].request == 1 && node.stacks[1].request == 2));
  CHECK(node.stacks[0].lines == node.stacks[1].lines);
  CHECK_FALSE(node.stacks[1].lines.empty());
  // One in haste may be cut off, and does not answer one with more time.
  node.monitor->on(NodeDump{.request = 3, .slot = 0, .limit = 1ms});
  node.monitor->on(NodeDump{.request = 4, .slot = 0});
  REQUIRE(node.comes([&] { return node.stacks.size() == 4; }));
  CHECK((node.stacks[2].request == 3 && node.stacks[3].request == 4));
  CHECK(node.stacks[3].lines.back() != "this took too long, and dlaunch stopped it");
}

TEST_CASE("a worker that --chaos has stopped continues after its time, without an order") {
  SleepingNode node;
  node.monitor->on(NodeInject{0, SIGSTOP, 200ms});
  CHECK(node.comes_to_stand());
  CHECK(node.comes([&] { return !node.stands(); }));
  node.monitor->on(NodeInject{0, SIGSTOP, 1h});
  CHECK(node.comes_to_stand());
  node.monitor->stop();
  CHECK(node.comes([&] { return !node.stands(); }));
}

TEST_CASE("what a worker reports of its progress is sent once, also without a watch for hangs") {
  SleepingNode node({"sh", "-c",
                     "echo '3/9 loss=0.5' >&$DLAUNCH_HEARTBEAT_FD; trap 'echo 9/9 "
                     ">&$DLAUNCH_HEARTBEAT_FD; exit' USR1; while :; do sleep 0.01; done"});
  REQUIRE(node.comes([&] { return !node.progress.empty(); }));
  CHECK(node.progress[0].rank == 0);
  CHECK(node.progress[0].progress.step == 3);
  CHECK(node.progress[0].progress.total == 9);
  const auto later = steady_now() + 2500ms;
  CHECK(node.comes([&] { return steady_now() >= later; }));
  CHECK(node.progress.size() == 1);
  ::kill(node.processes->pid(0), SIGUSR1);  // the last words of a worker that ends
  REQUIRE(node.comes([&] { return node.ended; }));
  node.monitor->last_news(0);
  REQUIRE(node.progress.size() == 2);
  CHECK(node.progress[1].progress.step == 9);
}
