// GiveUpNews: a host's reports to the leader about workers that have printed the time-out of a wait
// for other ranks. A worker may take long to end after that, and its end may take the others along;
// until then they are still where they were. Each is reported once in a round. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/traceback.h"
#include "launcher/wire/monitor_message.h"

namespace dlaunch {

class GiveUpNews {
 public:
  struct Worker {  // it runs and has printed a traceback
    Slot slot = 0;
    int round = 0;
    Traceback last;
  };
  // Pass all such workers.
  std::vector<NodeGaveUp> look(TimePoint now, const std::vector<Worker>& workers);
  // When to call look() again: a traceback is not printed at once. nullopt: not until another one
  // begins.
  std::optional<TimePoint> deadline() const { return deadline_; }

 private:
  std::map<Slot, int> told_;  // the round
  std::optional<TimePoint> deadline_;
};

}  // namespace dlaunch
