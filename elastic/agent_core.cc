#include "elastic/agent_core.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace dlaunch {
namespace {

// After SIGKILL only a process in an uninterruptible sleep stays; no use in waiting long for it.
constexpr Duration kKillPatience = std::chrono::seconds(5);

bool ends_the_job(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

AgentOn kind_of(const AgentCore::Event& event) {
  struct Kind {
    AgentOn operator()(const AgentCore::Start&) const { return AgentOn::start; }
    AgentOn operator()(const AgentCore::Spawned&) const { return AgentOn::spawned; }
    AgentOn operator()(const AgentCore::SpawnFailed&) const { return AgentOn::spawn_failed; }
    AgentOn operator()(const AgentCore::Exited& e) const {
      return e.well ? AgentOn::exited_well : AgentOn::failed;
    }
    AgentOn operator()(const AgentCore::Signal& e) const {
      return ends_the_job(e.number) ? AgentOn::stop : AgentOn::pass;
    }
    AgentOn operator()(const AgentCore::Clock&) const { return AgentOn::clock; }
  };
  return std::visit(Kind{}, event);
}

}  // namespace

AgentCore::AgentCore(AgentConfig config) : config_(config) { DL_ASSERT(config.workers > 0); }

std::vector<AgentCore::Action> AgentCore::step(TimePoint now, const Event& event) {
  actions_.clear();
  const AgentOn on = kind_of(event);
  if (!agent_handles(state_, on)) return {};
  switch (on) {
    case AgentOn::start:
      on_start(now);
      break;
    case AgentOn::spawned:
      on_spawned();
      break;
    case AgentOn::spawn_failed:
      drain(now, AgentEnd::spawn_failed, SIGTERM);
      break;
    case AgentOn::exited_well:
    case AgentOn::failed:
      on_exited(now, std::get<Exited>(event));
      break;
    case AgentOn::stop:
      on_stop(now, std::get<Signal>(event).number);
      break;
    case AgentOn::pass:
      signal_all(std::get<Signal>(event).number);
      break;
    case AgentOn::clock:
      on_clock(now);
      break;
  }
  settle(now);
  return std::move(actions_);
}

std::optional<TimePoint> AgentCore::deadline() const {
  if (state_ == AgentState::idle || state_ == AgentState::ended) return std::nullopt;
  const TimePoint next = state_ == AgentState::draining ? drain_deadline_ : job_deadline_;
  return next == kNever ? std::nullopt : std::optional(next);
}

void AgentCore::on_start(TimePoint now) {
  if (config_.timeout > Duration::zero()) job_deadline_ = deadline_after(now, config_.timeout);
  begin_round();
}

void AgentCore::begin_round() {
  ++round_;
  state_ = AgentState::starting;
  workers_.assign(static_cast<std::size_t>(config_.workers), Worker::absent);
  next_to_spawn_ = 0;
  why_ = AgentEnd::succeeded;
  killed_ = false;
  drain_deadline_ = kNever;
  spawn_next();
}

void AgentCore::spawn_next() { actions_.push_back(Spawn{round_, next_to_spawn_}); }

void AgentCore::on_spawned() {
  workers_[static_cast<std::size_t>(next_to_spawn_)] = Worker::running;
  if (++next_to_spawn_ < config_.workers) return spawn_next();
  state_ = AgentState::running;
}

void AgentCore::on_exited(TimePoint now, const Exited& event) {
  auto& worker = workers_[static_cast<std::size_t>(event.worker)];
  DL_ASSERT(worker == Worker::running);
  worker = Worker::ended;
  if (!event.well && state_ != AgentState::draining) drain(now, AgentEnd::worker_failed, SIGTERM);
}

void AgentCore::on_stop(TimePoint now, int signal) {
  if (state_ == AgentState::idle) {
    stop_signal_ = signal;
    why_ = AgentEnd::interrupted;
    return finish();
  }
  const bool again = stop_signal_ != 0;
  if (!again) stop_signal_ = signal;
  if (again) return kill(now);
  if (state_ == AgentState::draining) return signal_all(signal);
  drain(now, AgentEnd::interrupted, signal);
}

void AgentCore::on_clock(TimePoint now) {
  if (state_ != AgentState::draining) {
    if (now >= job_deadline_) drain(now, AgentEnd::timed_out, SIGTERM);
  } else if (now >= drain_deadline_) {
    if (killed_)
      finish();
    else
      kill(now);
  }
}

void AgentCore::drain(TimePoint now, AgentEnd why, int signal) {
  state_ = AgentState::draining;
  why_ = why;
  drain_deadline_ = deadline_after(now, config_.grace);
  signal_all(signal);
  if (config_.grace == Duration::zero()) kill(now);
}

void AgentCore::signal_all(int signal) {
  for (int w = 0; w < config_.workers; ++w) {
    if (workers_[static_cast<std::size_t>(w)] != Worker::running) continue;
    actions_.push_back(SendSignal{w, signal});
    // A stopped process would not see it before it is continued.
    if (ends_the_job(signal)) actions_.push_back(SendSignal{w, SIGCONT});
  }
}

void AgentCore::kill(TimePoint now) {
  if (std::exchange(killed_, true)) return;
  actions_.push_back(KillTree{});
  drain_deadline_ = deadline_after(now, kKillPatience);
}

bool AgentCore::any_running() const {
  return std::find(workers_.begin(), workers_.end(), Worker::running) != workers_.end();
}

// Everybody has been reaped: the round is over.
void AgentCore::settle(TimePoint) {
  if (state_ != AgentState::running && state_ != AgentState::draining) return;
  if (any_running()) return;
  const bool again =
      why_ == AgentEnd::worker_failed && stop_signal_ == 0 && round_ <= config_.max_restarts;
  if (!again) return finish();
  actions_.push_back(KillTree{});  // what the workers of this round have left behind
  begin_round();
}

void AgentCore::finish() {
  state_ = AgentState::ended;
  actions_.push_back(KillTree{});
  actions_.push_back(Finish{why_, stop_signal_, !any_running()});
}

}  // namespace dlaunch
