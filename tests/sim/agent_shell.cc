#include "tests/sim/agent_shell.h"

#include <algorithm>
#include <utility>

namespace dlaunch::sim {

AgentShell::AgentShell(const JobConfig& job, Duration grace, Hands& hands, Saboteur& saboteur)
    : hands_(hands),
      saboteur_(saboteur),
      job_(job),
      agent_(JobCore::slots(job), grace),
      places_(static_cast<std::size_t>(JobCore::slots(job))) {}

void AgentShell::feed(Event event) {
  events_.push_back(std::move(event));
  if (std::exchange(pumping_, true)) return;
  while (!events_.empty()) {
    const Event next = std::move(events_.front());
    events_.pop_front();
    if (const auto* what = std::get_if<JobCore::Event>(&next)) {
      for (const auto& heard : saboteur_.heard(*what)) {
        hands_.sees(heard);
        perform_all(saboteur_.said(job_.step(hands_.clock(), heard)));
      }
    } else {
      command(std::get<AgentCore::Event>(next));
    }
  }
  pumping_ = false;
}

void AgentShell::command(const AgentCore::Event& event) {
  perform_all(agent_.step(hands_.clock(), event));
}

template <class Actions>
void AgentShell::perform_all(const Actions& actions) {
  for (const auto& action : actions) {
    hands_.sees(action);
    std::visit([this](const auto& what) { perform(what); }, action);
  }
}

TimePoint AgentShell::timer() const {
  return std::min(job_.deadline().value_or(kNever), agent_.deadline().value_or(kNever));
}

void AgentShell::on_timer() {
  feed(AgentCore::Clock{});
  feed(JobCore::Clock{});
}

void AgentShell::on_ready(const Ready& ready) {
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (worker_in(slot) != ready.worker) continue;
    return feed(JobCore::Ready{slot, ready.left, ready.version});
  }
}

// -- What the job wants

void AgentShell::perform(const JobCore::StartWorkers& start) {
  AgentCore::Start slots;
  for (const auto& place : start.places) {
    to_start_[place.slot] = place;
    slots.slots.push_back(place.slot);
  }
  round_ = start.round;
  command(slots);
}

void AgentShell::perform(const JobCore::StopWorkers& stop) {
  command(AgentCore::Stop{stop.slots, stop.signal});
}

void AgentShell::perform(const JobCore::HandOn& pass) { command(AgentCore::HandOn{pass.signal}); }

void AgentShell::perform(const JobCore::Fence& fence) {
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (at(slot).running) hands_.send(at(slot).worker, FenceNotice{fence.round, fence.lost});
  }
}

void AgentShell::perform(const JobCore::Announce& announce) {
  RoundNotice notice{.round = announce.round, .size = static_cast<int>(announce.slots.size())};
  for (const Slot slot : announce.slots) {
    at(slot).rank = notice.rank;
    hands_.send(at(slot).worker, notice);
    ++notice.rank;
  }
}

// -- What this node does

void AgentShell::perform(const AgentCore::Spawn& spawn) {
  const int rank = to_start_.at(spawn.slot).rank;
  const int worker = ++last_worker_;
  if (!hands_.start(spawn.slot, worker, rank, round_)) return spawn_failed(spawn.slot);
  at(spawn.slot) = {worker, rank, true, hands_.clock()};
  feed(AgentCore::Spawned{});
  feed(JobCore::Spawned{spawn.slot});
}

void AgentShell::perform(const AgentCore::SendSignal& send) {
  if (at(send.slot).running) hands_.signal(at(send.slot).worker, send.number);
}

void AgentShell::perform(const AgentCore::NotStarted& what) {
  feed(JobCore::Ended{what.slot, true});
}

void AgentShell::perform(const AgentCore::GiveUp& what) { feed(JobCore::Unkillable{what.slot}); }

void AgentShell::spawn_failed(Slot slot) {
  at(slot).running = false;
  feed(JobCore::SpawnFailed{slot});
  feed(AgentCore::SpawnFailed{slot});
}

// Whose loss it blames is told of first, if it has ended already.
void AgentShell::on_ended(Slot slot, End end) {
  if (!end.well && end.blames >= 0) {
    for (Slot other = 0; other < slots(); ++other) {
      if (at(other).running && at(other).rank == end.blames && hands_.has_ended(at(other).worker)) {
        hands_.reap(at(other).worker);
      }
    }
  }
  at(slot).running = false;
  feed(AgentCore::Exited{slot});
  feed(JobCore::Ended{.slot = slot,
                      .well = end.well,
                      .consequence = end.blames >= 0,
                      .ran = hands_.clock() - at(slot).started});
}

}  // namespace dlaunch::sim
