// TracebackNews: a host's reports to the leader about workers that have printed a traceback and
// still run. A worker that has shown nothing for kSuspicious since then is reported once; if it
// goes on after all, that is reported, too. A worker that waits in a collective or for its next
// round, or is stopped or traced, is not reported before that ends. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "launcher/wire/after_traceback.h"
#include "launcher/wire/monitor_message.h"

namespace dlaunch {

class TracebackNews {
 public:
  struct Worker {  // it runs and has printed a traceback
    Slot slot = 0;
    int pid = 0;
    int round = 0;
    bool waits = false;  // for its next round, or it is stopped or traced
    AfterTraceback after;
  };
  // Pass all such workers.
  std::vector<NodeThrew> look(TimePoint now, const std::vector<Worker>& workers);
  // When to call look() again; nullopt: not until another traceback is printed.
  std::optional<TimePoint> deadline() const { return deadline_; }

 private:
  struct Known {
    int pid = 0;
    int round = 0;  // in which the traceback was found
    TimePoint threw{};
    bool told = false, over = false;
  };
  void judge(TimePoint now, const Worker& worker, Known& known, std::vector<NodeThrew>& news);
  void wake_at(TimePoint time);

  std::map<Slot, Known> known_;
  std::optional<TimePoint> deadline_;
};

}  // namespace dlaunch
