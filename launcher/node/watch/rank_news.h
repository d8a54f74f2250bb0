// RankNews: what a host reports to the leader about its workers' progress. Workers that move on
// cost nothing, nor do those that stay where they are. It reports:
// - each worker once in a round, when it appears;
// - where a worker stands, once it has not entered or left a collective for `still_after`, and that
//   it moves again: no more than two messages in that time; likewise for its heartbeats and for its
//   output and CPU time;
// - at once that a worker is stopped or traced, or no longer; that it waits for the next round. The
//   report on where a worker stands also says if it sleeps uninterruptibly. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/flight.h"
#include "launcher/wire/monitor_message.h"

namespace dlaunch {

class RankNews {
 public:
  struct Worker {  // as it was found
    Slot slot = 0;
    int rank = 0, round = 0, pid = 0;
    // nullopt: not known, as it ends, or as we read its stacks just now. A worker that was known
    // before keeps its last state: to forget it would end a hang just when dlaunch looks into it.
    std::optional<ProcessState> state = ProcessState::running;
    bool left = false;
    std::vector<FlightPosition> positions;
    std::optional<TimePoint> beat = {};    // its last heartbeat
    std::optional<TimePoint> active = {};  // it last wrote output or used CPU time
  };
  // max: does not report where workers stand.
  explicit RankNews(Duration still_after) : still_after_(still_after) {}

  // Pass all workers of the host. The news may be empty.
  NodeSeen look(TimePoint now, const std::vector<Worker>& workers);

 private:
  struct ToldSign {
    bool there = false, still = false;
  };
  struct Known {
    Worker last;        // with a state
    TimePoint since{};  // its position is unchanged since then
    std::optional<TimePoint> told;
    bool told_still = false;
    ToldSign told_beat, told_active;
    ProcessState told_state = ProcessState::running;
  };
  bool is_news(TimePoint now, Known& known, bool is_new) const;
  bool stands_now(TimePoint now, const Known& known, bool present, TimePoint since,
                  bool& told) const;
  bool sign_changed(TimePoint now, const Known& known, std::optional<TimePoint> sign,
                    ToldSign& told) const;
  NodeRank describe(TimePoint now, const Known& known) const;

  const Duration still_after_;
  std::map<Slot, Known> known_;
};

}  // namespace dlaunch
