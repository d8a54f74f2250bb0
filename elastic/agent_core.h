// AgentCore decides about the processes of one node: it starts them one after another, stops some
// or all of them, and kills those that ignore the signal. JobCore decides which ones run. Pure:
// events in, actions out; NodeDriver (launcher/node/node_driver.h) has the actions performed and
// reports the results.
//
// Stopping: the signal to the worker's process group, `grace`, then SIGKILL to the group. It
// reports a process that SIGKILL does not end within 5 s, and JobCore decides whether the job waits
// longer.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

// A place for one worker process on this node, from 0.
using Slot = int;

// Kubernetes and Slurm kill dlaunch so long after --grace: until then it has written its report.
inline constexpr Duration kKillPatience = std::chrono::seconds(5);

class AgentCore {
 public:
  // -- Events
  struct Start {
    std::vector<Slot> slots;
  };
  struct Stop {
    std::vector<Slot> slots;
    int signal;  // SIGKILL: without grace
  };
  struct HandOn {  // a signal of the user that does not end the job
    int signal;
  };
  struct Spawned {};  // the worker of the last Spawn action runs
  struct SpawnFailed {
    Slot slot;
  };  // it does not run, or ended before it ran its program. The next one starts at the next Clock
  struct Exited {
    Slot slot;
  };
  struct Clock {};  // deadline() has passed, or the next one may start
  using Event = std::variant<Start, Stop, HandOn, Spawned, SpawnFailed, Exited, Clock>;

  // -- Actions, to be performed in order
  struct Spawn {
    Slot slot;
  };
  struct SendSignal {
    Slot slot;
    int number;
  };
  struct NotStarted {  // it was stopped before its turn came
    Slot slot;
  };
  struct TellStuck {  // SIGKILL has not ended it within kKillPatience
    Slot slot;
  };
  using Action = std::variant<Spawn, SendSignal, NotStarted, TellStuck>;

  AgentCore(int slots, Duration grace);

  // It has at least so many slots from now on.
  void grow(int slots) {
    processes_.resize(std::max(processes_.size(), static_cast<std::size_t>(slots)));
  }
  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

 private:
  enum class Life { absent, queued, starting, running, stopping, killed };
  struct Process {
    Life life = Life::absent;
    int signal = 0;               // while starting: stop it at once with this
    TimePoint deadline = kNever;  // of stopping and killed
  };

  void on(TimePoint now, const Start& event);
  void on(TimePoint now, const Stop& event);
  void on(TimePoint now, const HandOn& event);
  void on(TimePoint now, const Spawned& event);
  void on(TimePoint now, const SpawnFailed& event);
  void on(TimePoint now, const Exited& event);
  void on(TimePoint now, const Clock& event);
  void stop(TimePoint now, Slot slot, int signal);
  void spawn_next();
  void send(Slot slot, int signal);
  Process& at(Slot slot) { return processes_[static_cast<std::size_t>(slot)]; }

  const Duration grace_;
  std::vector<Process> processes_;
  std::deque<Slot> queue_;
  std::optional<Slot> spawning_;
  std::vector<Action> actions_;
};

}  // namespace dlaunch
