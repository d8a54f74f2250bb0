// NodeDriver carries out the job's wishes on one node: it feeds AgentCore, has its decisions
// performed, and reports the results to the leader. One thread, the pump's.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "elastic/agent_core.h"
#include "elastic/job_core.h"
#include "elastic/pump.h"
#include "launcher/wire/node_message.h"

namespace dlaunch {

class NodeDriver {
 public:
  class Effects {
   public:
    virtual ~Effects() = default;
    virtual TimePoint now() = 0;
    // Stage::none: it runs.
    virtual SpawnError spawn(Slot slot, int rank, int round) = 0;
    virtual void perform(const AgentCore::SendSignal& send) = 0;
    // The process there, which SIGKILL has not ended so far.
    virtual NodeStuck look_at_stuck(Slot slot) { return {.slot = slot}; }
    // Sends to the leader.
    virtual void say(const NodeMessage& message) = 0;
    virtual void looks_on(const AgentCore::Action&) {}
  };
  // Pump and effects must outlive this object.
  NodeDriver(int slots, Duration grace, Pump& pump, Effects& effects);

  // As AgentCore.
  void grow(int slots) { core_.grow(slots); }

  // -- The job's wishes: done before any other event is handled. Call them from within one.
  void start(int round, const std::vector<JobCore::Place>& places);
  void stop(const std::vector<Slot>& slots, int signal);
  void hand_on(int signal);

  // -- What happened here
  // It was spawned and is reaped. The leader gets NodeEnded next.
  void exited(Slot slot);
  // It was spawned, and ended before it ran its program.
  void never_ran(Slot slot, const SpawnError& error);
  void on_clock();  // deadline() has passed
  std::optional<TimePoint> deadline() const { return core_.deadline(); }

 private:
  void step(const AgentCore::Event& event);
  void post(const AgentCore::Event& event);
  void perform(const AgentCore::Spawn& spawn);
  void perform(const AgentCore::SendSignal& send) { effects_.perform(send); }
  void perform(const AgentCore::NotStarted& what);
  void perform(const AgentCore::TellStuck& what);

  AgentCore core_;
  Pump& pump_;
  Effects& effects_;
  int round_ = 0;              // for which processes start now
  std::map<Slot, int> ranks_;  // their ranks
};

}  // namespace dlaunch
