// AgentCore decides the life of the workers of one node: start them one after another, notice the
// first failure, drain the rest, restart the round or end. Pure: events in, actions out; the agent
// shell (launcher/agent.cc) performs the actions and reports what happened. A job without restarts
// is the same machine with max_restarts == 0.
//
// Drain: SIGTERM (or the user's own signal) to every worker's process group, `grace`, then SIGKILL
// to the whole process tree. A second SIGINT, SIGTERM or SIGQUIT of the user kills at once; SIGHUP
// does not, because a closing terminal and its shell send one each.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "elastic/agent_table.h"

namespace dlaunch {

struct AgentConfig {
  int workers = 1;
  Duration grace = std::chrono::seconds(10);
  Duration timeout{};    // of the whole job; 0: none
  int max_restarts = 0;  // rounds after the first
};

// Why the last round ended.
enum class AgentEnd { succeeded, worker_failed, spawn_failed, interrupted, timed_out };

// SIGINT, SIGTERM, SIGHUP, SIGQUIT: the user wants the job to end. Others are handed on.
bool ends_the_job(int signal);

class AgentCore {
 public:
  // -- Events
  struct Start {};
  struct Spawned {};  // the worker of the last Spawn action runs
  // It does not; or a worker that was Spawned ended before it came to run its program.
  struct SpawnFailed {
    int worker;
  };
  struct Exited {
    int worker;
    bool well;  // exit code 0
  };
  struct Signal {
    int number;
  };
  struct Clock {};  // deadline() has passed
  using Event = std::variant<Start, Spawned, SpawnFailed, Exited, Signal, Clock>;

  // -- Actions, to be performed in order
  struct Spawn {
    int round;
    int worker;
  };
  struct SendSignal {
    int worker;
    int number;
  };
  struct KillTree {};  // SIGKILL to every descendant
  struct Finish {
    AgentEnd end;
    int signal;  // interrupted: the user's first
    bool all_reaped;
  };
  using Action = std::variant<Spawn, SendSignal, KillTree, Finish>;

  explicit AgentCore(AgentConfig config);

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const;

  AgentState state() const { return state_; }
  int round() const { return round_; }
  // Whether this round's workers were sent SIGKILL.
  bool killed() const { return killed_; }

 private:
  enum class Worker { absent, starting, running, ended };

  void handle(TimePoint now, AgentOn on, const Event& event);
  void on_start(TimePoint now);
  void on_spawned();
  void on_spawn_failed(TimePoint now, const SpawnFailed& event);
  void on_exited(TimePoint now, const Exited& event);
  void on_stop(TimePoint now, int signal);
  void on_clock(TimePoint now);
  void spawn_next();
  void drain(TimePoint now, AgentEnd why, int signal);
  void signal_all(int signal);
  void signal_one(int worker, int signal);
  void kill(TimePoint now);
  void settle(TimePoint now);
  void begin_round();
  void finish();
  bool any_left() const;

  AgentConfig config_;
  AgentState state_ = AgentState::idle;
  std::vector<Worker> workers_;
  int round_ = 0;
  int next_to_spawn_ = 0;
  AgentEnd why_ = AgentEnd::succeeded;
  int drain_signal_ = 0;  // what the drain began with
  int stop_signal_ = 0;   // the user's first
  TimePoint stopped_at_{};
  bool killed_ = false;
  TimePoint job_deadline_ = kNever;
  TimePoint drain_deadline_ = kNever;
  std::vector<Action> actions_;
};

}  // namespace dlaunch
