// TracebackNews: what the leading dlaunch is told of workers that have printed a traceback and
// still run. One that has shown nothing for kSuspicious since then is told of once; when it goes on
// after all, that is told, too. One that waits in a collective, or for its next round, or that is
// stopped or traced, is told of no earlier than it does not any more. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "launcher/hosts/monitor_message.h"
#include "launcher/report/after_traceback.h"

namespace dlaunch {

class TracebackNews {
 public:
  struct Worker {  // that runs and has printed a traceback
    Slot slot = 0;
    int pid = 0;
    int round = 0;
    bool waits = false;  // for its next round, or it is stopped or traced
    AfterTraceback after;
  };
  // All that there are.
  std::vector<NodeThrew> look(TimePoint now, const std::vector<Worker>& workers);
  // When look() is to be called again; nullopt: not until another traceback is printed.
  std::optional<TimePoint> deadline() const { return deadline_; }

 private:
  struct Known {
    int pid = 0;
    int round = 0;  // in which it was found to have printed that
    TimePoint threw{};
    bool told = false, over = false;
  };
  void judge(TimePoint now, const Worker& worker, Known& known, std::vector<NodeThrew>& news);
  void wake_at(TimePoint time);

  std::map<Slot, Known> known_;
  std::optional<TimePoint> deadline_;
};

}  // namespace dlaunch
