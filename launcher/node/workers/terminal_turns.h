// TerminalTurns decides which worker has the user's terminal: one at a time, in the order in which
// they ask. Pure. A worker asks when it stops because it is in the terminal's background (SIGTTIN,
// SIGTTOU).
#pragma once

#include <algorithm>
#include <deque>
#include <optional>

#include "elastic/agent_core.h"

namespace dlaunch {

class TerminalTurns {
 public:
  // The worker has it now, without having asked.
  void has(Slot slot) { turns_.push_front(slot); }
  // The worker asks. True: it gets the terminal now. One that has it already gets it again.
  bool asks(Slot slot) {
    if (std::ranges::find(turns_, slot) == turns_.end()) turns_.push_back(slot);
    return turns_.front() == slot;
  }
  // The worker has ended. True: it had the terminal, which is free now, or holder()'s.
  bool ended(Slot slot) {
    const bool had = holder() == slot;
    std::erase(turns_, slot);
    return had;
  }
  std::optional<Slot> holder() const {
    return turns_.empty() ? std::nullopt : std::optional(turns_.front());
  }

 private:
  std::deque<Slot> turns_;  // the first has the terminal
};

}  // namespace dlaunch
