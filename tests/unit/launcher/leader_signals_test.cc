#include "launcher/lead/leader_signals.h"

#include <csignal>

#include <doctest/doctest.h>

#include "elastic/job_core.h"

namespace dlaunch {
namespace {

using Answer = LeaderSignals::Answer;

NodesPlan in_step(NodesPlan::Step step) {
  NodesPlan nodes;
  nodes.step = step;
  return nodes;
}

NodesPlan started_by(Starter starter) {
  NodesPlan nodes;
  nodes.starter = starter;
  return nodes;
}

TEST_CASE("leader signals: a running job gets each; a job that gathers its hosts ends") {
  const NodesPlan nodes;
  const LeaderSignals signals(nodes);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGTSTP, SIGWINCH}) {
    CHECK(signals.take(signal, LeaderSignals::Job::runs) == Answer::to_the_job);
  }
  CHECK(signals.take(SIGTERM, LeaderSignals::Job::gathers) == Answer::give_up);
  CHECK(signals.take(SIGUSR1, LeaderSignals::Job::gathers) == Answer::ignore);
  CHECK(signals.take(SIGINT, LeaderSignals::Job::ended) == Answer::leave);
  CHECK(signals.take(SIGUSR1, LeaderSignals::Job::ended) == Answer::ignore);
}

TEST_CASE("leader signals: in a step of Slurm, workers already have signals that do not end jobs") {
  const NodesPlan slurm = in_step(NodesPlan::Step::slurm);
  const NodesPlan flux = in_step(NodesPlan::Step::flux);
  CHECK(LeaderSignals(slurm).take(SIGUSR1, LeaderSignals::Job::runs) == Answer::ignore);
  CHECK(LeaderSignals(slurm).take(SIGTERM, LeaderSignals::Job::runs) == Answer::to_the_job);
  CHECK(LeaderSignals(flux).take(SIGUSR1, LeaderSignals::Job::runs) == Answer::to_the_job);
}

TEST_CASE("leader signals: a scheduler signals every host, ssh only the leader") {
  const NodesPlan ssh = started_by(Starter::ssh);
  const NodesPlan srun = started_by(Starter::srun);
  const NodesPlan flux = in_step(NodesPlan::Step::flux);
  CHECK_FALSE(LeaderSignals(ssh).comes_from_all_hosts(SIGTERM));
  CHECK(LeaderSignals(srun).comes_from_all_hosts(SIGTERM));
  CHECK_FALSE(LeaderSignals(srun).comes_from_all_hosts(SIGUSR1));  // srun gives it to the workers
  CHECK(LeaderSignals(flux).comes_from_all_hosts(SIGUSR1));
}

TEST_CASE("leader signals: a second signal does not wait for the journal") {
  const NodesPlan nodes;
  LeaderSignals signals(nodes);
  const TimePoint first{};
  CHECK_FALSE(signals.gives_up(first, SIGUSR1, true));
  CHECK_FALSE(signals.gives_up(first, SIGINT, true));
  CHECK_FALSE(signals.gives_up(first + kSameWish / 2, SIGINT, true));  // the same key press
  CHECK_FALSE(signals.gives_up(first + kSameWish, SIGINT, false));
  CHECK_FALSE(signals.gives_up(first + kSameWish, SIGUSR1, true));
  CHECK(signals.gives_up(first + kSameWish, SIGINT, true));
}

}  // namespace
}  // namespace dlaunch
