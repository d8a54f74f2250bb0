// NodeDriver does on one node what the job wants of it: feeds AgentCore, has its decisions carried
// out, and tells the job how that went. One thread, the pump's.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "elastic/agent_core.h"
#include "elastic/job_core.h"
#include "elastic/pump.h"

namespace dlaunch {

class NodeDriver {
 public:
  class Effects {
   public:
    virtual ~Effects() = default;
    virtual TimePoint now() = 0;
    // False: it could not be spawned, and why was told.
    virtual bool spawn(Slot slot, int rank, int round) = 0;
    virtual void perform(const AgentCore::SendSignal& send) = 0;
    // To JobDriver.
    virtual void tell(const JobCore::Event& event) = 0;
    virtual void looks_on(const AgentCore::Action&) {}
  };
  // Pump and effects must outlive this object.
  NodeDriver(int slots, Duration grace, Pump& pump, Effects& effects);

  // As AgentCore.
  void grow(int slots) { core_.grow(slots); }

  // -- What the job wants: done before any other event is handled. Call them from within one.
  void start(int round, const std::vector<JobCore::Place>& places);
  void stop(const std::vector<Slot>& slots, int signal);
  void hand_on(int signal);

  // -- What happened here
  // It was Spawned and is reaped. The job hears of it next, by JobCore::Ended.
  void exited(Slot slot);
  // It was Spawned, and ended before it came to run its program.
  void never_ran(Slot slot);
  void on_clock();  // deadline() has passed
  std::optional<TimePoint> deadline() const { return core_.deadline(); }

 private:
  void step(const AgentCore::Event& event);
  void post(const AgentCore::Event& event);
  void perform(const AgentCore::Spawn& spawn);
  void perform(const AgentCore::SendSignal& send) { effects_.perform(send); }
  void perform(const AgentCore::NotStarted& what);
  void perform(const AgentCore::GiveUp& what);

  AgentCore core_;
  Pump& pump_;
  Effects& effects_;
  int round_ = 0;              // that processes are started for
  std::map<Slot, int> ranks_;  // that they are started as
};

}  // namespace dlaunch
