#include "elastic/agent_core.h"

#include <signal.h>

#include <utility>

#include "base/check.h"
#include "elastic/job_core.h"

namespace dlaunch {

AgentCore::AgentCore(int slots, Duration grace)
    : grace_(grace), processes_(static_cast<std::size_t>(slots)) {}

std::vector<AgentCore::Action> AgentCore::step(TimePoint now, const Event& event) {
  actions_.clear();
  std::visit([&](const auto& what) { on(now, what); }, event);
  return std::move(actions_);
}

std::optional<TimePoint> AgentCore::deadline() const {
  TimePoint next = kNever;
  for (const auto& process : processes_) next = std::min(next, process.deadline);
  return next == kNever ? std::nullopt : std::optional(next);
}

void AgentCore::on(TimePoint, const Start& event) {
  for (const Slot slot : event.slots) {
    DL_ASSERT(at(slot).life == Life::absent);
    at(slot) = {Life::queued};
    queue_.push_back(slot);
  }
  spawn_next();
}

void AgentCore::spawn_next() {
  if (spawning_ || queue_.empty()) return;
  spawning_ = queue_.front();
  queue_.pop_front();
  at(*spawning_).life = Life::starting;
  actions_.push_back(Spawn{*spawning_});
}

void AgentCore::on(TimePoint now, const Spawned&) {
  DL_ASSERT(spawning_.has_value());
  const Slot slot = *std::exchange(spawning_, std::nullopt);
  Process& process = at(slot);
  process.life = Life::running;
  if (process.signal != 0) stop(now, slot, process.signal);
  spawn_next();
}

void AgentCore::on(TimePoint, const SpawnFailed& event) {
  if (spawning_ == event.slot) spawning_.reset();
  at(event.slot) = {};
}

void AgentCore::on(TimePoint, const Exited& event) {
  DL_ASSERT(at(event.slot).life != Life::starting);
  at(event.slot) = {};
}

void AgentCore::on(TimePoint now, const Stop& event) {
  for (const Slot slot : event.slots) stop(now, slot, event.signal);
}

void AgentCore::stop(TimePoint now, Slot slot, int signal) {
  Process& process = at(slot);
  switch (process.life) {
    case Life::absent:
    case Life::killed:
      return;
    case Life::queued:
      queue_.erase(std::ranges::find(queue_, slot));
      process = {};
      actions_.push_back(NotStarted{slot});
      return;
    case Life::starting:
      process.signal = process.signal == SIGKILL ? SIGKILL : signal;
      return;
    case Life::running:
    case Life::stopping:
      break;
  }
  const bool kill = signal == SIGKILL || grace_ == Duration::zero();
  // A second wish to stop does not prolong the first one's grace.
  if (kill || process.life == Life::running) {
    process.deadline = deadline_after(now, kill ? kKillPatience : grace_);
  }
  process.life = kill ? Life::killed : Life::stopping;
  send(slot, signal);
  if (kill && signal != SIGKILL) send(slot, SIGKILL);
}

void AgentCore::send(Slot slot, int signal) {
  actions_.push_back(SendSignal{slot, signal});
  // A stopped process receives the signal only when it continues.
  if (ends_the_job(signal)) actions_.push_back(SendSignal{slot, SIGCONT});
}

void AgentCore::on(TimePoint, const HandOn& event) {
  for (std::size_t s = 0; s < processes_.size(); ++s) {
    const Life life = processes_[s].life;
    if (life != Life::running && life != Life::stopping) continue;
    actions_.push_back(SendSignal{static_cast<Slot>(s), event.signal});
  }
}

void AgentCore::on(TimePoint now, const Clock&) {
  spawn_next();  // after a SpawnFailed
  for (std::size_t s = 0; s < processes_.size(); ++s) {
    const auto slot = static_cast<Slot>(s);
    if (processes_[s].deadline > now) continue;
    if (processes_[s].life == Life::stopping) {
      stop(now, slot, SIGKILL);
    } else {
      processes_[s].deadline = kNever;
      actions_.push_back(TellStuck{slot});
    }
  }
}

}  // namespace dlaunch
