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
  SleepingNode() {
    REQUIRE(starter);
    processes.emplace(loop, hub, *starter, helpers, 1,
                      Processes::Handlers{.ended = [this](Slot, const WorkerEnd&) { ended = true; },
                                          .child_changed = [] {},
                                          .never_ran = [](Slot, const SpawnError&) {}});
    REQUIRE(processes->start(0, {.worker = 1}).stage == Stage::none);
    monitor.emplace(loop, *processes, helpers, [](const NodeMessage&) {});
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
  static Plan sleeper() {
    Plan plan;
    plan.argv = {"sleep", "1000"};
    plan.job_id = "j";
    plan.host = "h";
    plan.output.mode = OutputMode::none;
    return plan;
  }

  const Plan plan = sleeper();
  asio::io_context loop;
  OutputHub hub{loop, plan};
  Result<WorkerStarter> starter = WorkerStarter::make(plan, {});
  std::set<pid_t> helpers;
  std::optional<Processes> processes;
  std::optional<NodeMonitor> monitor;
  bool ended = false;
};

}  // namespace

TEST_CASE("a worker that --chaos has stopped continues after its time, without an order") {
  SleepingNode node;
  CHECK(node.monitor->take(NodeInject{0, SIGSTOP, 200ms}));
  CHECK(node.comes_to_stand());
  CHECK(node.comes([&] { return !node.stands(); }));
  CHECK(node.monitor->take(NodeInject{0, SIGSTOP, 1h}));
  CHECK(node.comes_to_stand());
  node.monitor->stop();
  CHECK(node.comes([&] { return !node.stands(); }));
}
