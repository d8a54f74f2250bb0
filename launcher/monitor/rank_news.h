// RankNews: what the leading dlaunch has to be told of the progress of a host's workers, so that
// those that move on and those that stand as they stood cost nothing. Told is
// - of each worker once in a round that it is there;
// - once it has not entered or left a collective for `still_after`: where it stands; and when it
//   does again, that it moves: so no more than two messages of it in that time;
// - at once that it is stopped or traced, or no longer; that it waits for the next round.
// That it sleeps uninterruptibly is told with where it stands. Pure.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/flight.h"
#include "launcher/hosts/monitor_message.h"

namespace dlaunch {

class RankNews {
 public:
  struct Worker {  // as it was found
    Slot slot = 0;
    int rank = 0, round = 0, pid = 0;
    ProcessState state = ProcessState::running;
    bool left = false;
    std::vector<FlightPosition> positions;
  };
  // max: where workers stand is not told.
  explicit RankNews(Duration still_after) : still_after_(still_after) {}

  // All workers of the host. The news may be none.
  NodeSeen look(TimePoint now, const std::vector<Worker>& workers);

 private:
  struct Known {
    Worker last;
    TimePoint since{};  // it stands as it stands
    std::optional<TimePoint> told;
    bool told_still = false;
    ProcessState told_state = ProcessState::running;
  };
  bool is_news(TimePoint now, Known& known, bool is_new) const;
  NodeRank describe(TimePoint now, const Known& known) const;

  const Duration still_after_;
  std::map<Slot, Known> known_;
};

}  // namespace dlaunch
