// LeaderWait: how long dlaunchctl waits for the next leader of a job that outlives its leader.
// Pure.
#pragma once

#include <optional>

#include "base/clock.h"

namespace dlaunch::ctl {

class LeaderWait {
 public:
  // What dlaunchctl knows when it has lost the leader.
  struct Known {
    bool elsewhere = false;  // no dlaunch of the job is expected on this machine
    // So long the job's hosts wait for their next leader, if an answer would have said that the job
    // has ended: then the leader was lost. None: the job may have ended.
    std::optional<Duration> hosts_wait = {};
    TimePoint until = kNever;  // the user's limit
  };
  LeaderWait(TimePoint now, const Known& known);

  // A dlaunch of the job runs on this machine: it waits for the next leader, too.
  void seen(TimePoint now);
  bool over(TimePoint now) const { return now >= by_; }
  Duration left(TimePoint now) const { return by_ - now; }

 private:
  const TimePoint until_;
  TimePoint by_;
};

}  // namespace dlaunch::ctl
