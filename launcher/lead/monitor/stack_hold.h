// StackHold: what comes first when a worker's failure may only follow from its wait for another
// rank. A worker that gives up waiting ends the job, and the signals that end the job destroy the
// evidence: what the rank that it waited for was doing. So the stacks of the others are taken when
// it says that it gives up, or when it ends. The job learns of its end kStackHold later at most.
// All ends pass in the order in which they came. A failure that is clearly a cause passes at once,
// with all that were held. Pure.
#pragma once

#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "elastic/agent_core.h"
#include "launcher/wire/worker_end.h"

namespace dlaunch {

inline constexpr Duration kStackHold = std::chrono::seconds(3);

class StackHold {
 public:
  // -- Events
  struct Ended {
    Slot slot = 0;
    WorkerEnd end;
    bool may_follow = false;   // from a wait for another rank
    std::vector<Slot> others;  // the members that still run
  };
  struct GaveUp {  // a worker says so, and still runs
    Slot slot = 0;
    std::vector<Slot> others;
  };
  struct Answered {  // the stacks of that worker and its counts of NCCL are there, or will not come
    Slot slot = 0;
  };
  struct Hurry {};  // something else happens to the job, and the order of events must stay
  struct Clock {};  // deadline() has passed
  using Event = std::variant<Ended, GaveUp, Answered, Hurry, Clock>;

  // -- Actions, to be performed in order
  struct TakeStacks {
    std::vector<Slot> slots;
  };
  struct PassOn {
    Slot slot = 0;
    WorkerEnd end;
  };
  using Action = std::variant<TakeStacks, PassOn>;

  std::vector<Action> step(TimePoint now, const Event& event);
  std::optional<TimePoint> deadline() const { return until_; }

 private:
  std::vector<Action> on(TimePoint now, const Ended& event);
  std::vector<Action> on(TimePoint now, const GaveUp& event);
  std::vector<Action> on(TimePoint now, const Answered& event);
  std::vector<Action> on(TimePoint now, const Hurry& event);
  std::vector<Action> on(TimePoint now, const Clock& event);
  std::vector<Action> take(TimePoint now, const std::vector<Slot>& others);
  std::vector<Action> pass_all();

  std::optional<TimePoint> taken_;  // the last time
  std::optional<TimePoint> until_;  // set while ends are held
  std::vector<PassOn> held_;
  std::set<Slot> awaited_;
};

}  // namespace dlaunch
