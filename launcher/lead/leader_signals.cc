#include "launcher/lead/leader_signals.h"

#include "elastic/job_core.h"

namespace dlaunch {

bool LeaderSignals::comes_from_all_hosts(int signal) const {
  return nodes_.signalled_by_all() && (ends_the_job(signal) || !nodes_.steps_signal_workers());
}

LeaderSignals::Answer LeaderSignals::take(int signal, Job job) const {
  const bool ends = ends_the_job(signal);
  const bool workers_have_it = nodes_.step == NodesPlan::Step::slurm && !ends;
  if (workers_have_it) return Answer::ignore;
  if (job == Job::runs) return Answer::to_the_job;
  if (!ends) return Answer::ignore;
  return job == Job::gathers ? Answer::give_up : Answer::leave;
}

bool LeaderSignals::gives_up(TimePoint now, int signal, bool held_up) {
  if (!ends_the_job(signal)) return false;
  if (!asked_to_end_) asked_to_end_ = now;
  return held_up && now - *asked_to_end_ >= kSameWish;
}

}  // namespace dlaunch
