#include "tests/sim/agent_shell.h"

#include <algorithm>

namespace dlaunch::sim {

AgentShell::AgentShell(const JobConfig& job, Duration grace, Outside& outside, Saboteur& saboteur)
    : outside_(outside),
      saboteur_(saboteur),
      job_(job, pump_, *this),
      node_(JobCore::slots(job), grace, pump_, *this),
      places_(static_cast<std::size_t>(JobCore::slots(job))) {}

TimePoint AgentShell::timer() const {
  return std::min(job().deadline().value_or(kNever), node_.deadline().value_or(kNever));
}

void AgentShell::on_timer() {
  node_.on_clock();
  feed(JobCore::Clock{});
}

void AgentShell::on_ready(const Ready& ready) {
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (worker_in(slot) != ready.worker) continue;
    return feed(JobCore::Ready{slot, ready.left, ready.version});
  }
}

// -- What the job wants

std::vector<JobCore::Action> AgentShell::decide(JobCore& core, const JobCore::Event& event) {
  const auto heard = saboteur_.heard(event);
  outside_.sees(heard);
  return saboteur_.said(core.step(now(), heard));
}

void AgentShell::perform(const JobCore::StartWorkers& start) {
  outside_.sees(start);
  node_.start(start.round, start.places);
}

void AgentShell::perform(const JobCore::StopWorkers& stop) {
  outside_.sees(stop);
  node_.stop(stop.slots, stop.signal);
}

void AgentShell::perform(const JobCore::HandOn& pass) {
  outside_.sees(pass);
  node_.hand_on(pass.signal);
}

void AgentShell::perform(const JobCore::Fence& fence) {
  outside_.sees(fence);
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (at(slot).running) outside_.send(at(slot).worker, FenceNotice{fence.round, fence.lost});
  }
}

void AgentShell::perform(const JobCore::Announce& announce) {
  outside_.sees(announce);
  RoundNotice notice{.round = announce.round, .size = static_cast<int>(announce.slots.size())};
  for (const Slot slot : announce.slots) {
    at(slot).rank = notice.rank;
    outside_.send(at(slot).worker, notice);
    ++notice.rank;
  }
}

void AgentShell::perform(const JobCore::Finish& how) { outside_.sees(how); }

// -- What this node does

bool AgentShell::spawn(Slot slot, int rank, int round) {
  const int worker = ++last_worker_;
  if (!outside_.start(slot, worker, rank, round)) return false;
  at(slot) = {worker, rank, true, now()};
  return true;
}

void AgentShell::perform(const AgentCore::SendSignal& send) {
  if (at(send.slot).running) outside_.signal(at(send.slot).worker, send.number);
}

void AgentShell::on_never_ran(Slot slot) {
  at(slot).running = false;
  node_.never_ran(slot);
}

// Whose loss it blames is told of first, if it has ended already.
void AgentShell::on_ended(Slot slot, End end) {
  if (!end.well && end.blames >= 0) {
    for (const Place& other : places_) {
      if (other.running && other.rank == end.blames && outside_.has_ended(other.worker)) {
        outside_.reap(other.worker);
      }
    }
  }
  at(slot).running = false;
  node_.exited(slot);
  feed(JobCore::Ended{.slot = slot,
                      .well = end.well,
                      .consequence = end.blames >= 0,
                      .ran = now() - at(slot).started});
}

}  // namespace dlaunch::sim
