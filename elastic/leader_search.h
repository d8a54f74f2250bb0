// LeaderSearch: how long an agent without a leader looks for one, and when it says so. Pure.
#pragma once

#include <string>

#include "base/clock.h"

namespace dlaunch {

class LeaderSearch {
 public:
  struct Config {
    bool elects = false;          // another leader may follow a lost one
    bool leader_returns = false;  // a lost leader is restarted
    Duration join_timeout{};
  };
  struct Failure {  // of an attempt to reach it
    std::string why;
    bool refused = false;  // its host answers that nothing listens there
    bool final = false;    // the leader refused us, and would refuse us again
  };
  enum class Next {
    wait,
    warn,           // and wait: `why` is news, or was said long ago
    not_restarted,  // give up: the leader of the workers here did not come back
    cannot_join,    // give up
  };

  LeaderSearch(const Config& config, TimePoint now);

  // goes_on: the workers here belong to a run that outlives its leader.
  void lost(TimePoint now, bool goes_on);
  Next failed(TimePoint now, const Failure& failure, bool goes_on);

 private:
  const Config config_;
  TimePoint give_up_at_;
  TimePoint refused_until_;  // before that, an address at which nothing listens is no reason
  TimePoint warn_at_;
  std::string said_;
};

}  // namespace dlaunch
