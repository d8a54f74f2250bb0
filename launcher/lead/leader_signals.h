// LeaderSignals: what a signal to dlaunch means for the job that it leads. Pure.
#pragma once

#include <optional>

#include "base/clock.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

class LeaderSignals {
 public:
  enum class Job {
    gathers,  // waits for its hosts
    runs,
    ended  // has ended, or is given up; the last output is on its way
  };
  enum class Answer {
    ignore,
    give_up,     // before the job has begun
    to_the_job,  // JobCore decides
    leave        // at once, without the last output
  };

  // `nodes` must outlive it.
  explicit LeaderSignals(const NodesPlan& nodes) : nodes_(nodes) {}

  // A scheduler sends this signal to all hosts: it counts once for the job.
  bool comes_from_all_hosts(int signal) const;
  Answer take(int signal, Job job) const;
  // After to_the_job. Events that end the job wait for pending writes of its journal, perhaps for
  // ever: the job is given up once a user insists. held_up: such writes are pending.
  bool gives_up(TimePoint now, int signal, bool held_up);

 private:
  const NodesPlan& nodes_;
  std::optional<TimePoint> asked_to_end_;
};

}  // namespace dlaunch
