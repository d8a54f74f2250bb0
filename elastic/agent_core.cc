#include "elastic/agent_core.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace dlaunch {
namespace {

// After SIGKILL only a process in an uninterruptible sleep stays; no use in waiting long for it.
constexpr Duration kKillPatience = std::chrono::seconds(5);
// timeout(1) signals its child and then the whole group its child is in: the same signal twice
// within microseconds is one wish. People press ^C twice more slowly than this.
constexpr Duration kSameWish = std::chrono::milliseconds(100);

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

bool ends_the_job(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

AgentCore::AgentCore(AgentConfig config) : config_(config) { DL_ASSERT(config.workers > 0); }

std::vector<AgentCore::Action> AgentCore::step(TimePoint now, const Event& event) {
  const AgentOn on = kind_of(event);
  const AgentState from = state_;
  if (!agent_handles(from, on)) return {};
  actions_.clear();
  handle(now, on, event);
  settle(now);
  DL_ASSERT(agent_may_move({from, on, state_}));
  return std::move(actions_);
}

void AgentCore::handle(TimePoint now, AgentOn on, const Event& event) {
  switch (on) {
    case AgentOn::start:
      return on_start(now);
    case AgentOn::spawned:
      return on_spawned();
    case AgentOn::spawn_failed:
      return on_spawn_failed(now, std::get<SpawnFailed>(event));
    case AgentOn::exited_well:
    case AgentOn::failed:
      return on_exited(now, std::get<Exited>(event));
    case AgentOn::stop:
      return on_stop(now, std::get<Signal>(event).number);
    case AgentOn::pass:
      return signal_all(std::get<Signal>(event).number);
    case AgentOn::clock:
      return on_clock(now);
  }
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

void AgentCore::spawn_next() {
  workers_[static_cast<std::size_t>(next_to_spawn_)] = Worker::starting;
  actions_.push_back(Spawn{round_, next_to_spawn_});
}

void AgentCore::on_spawned() {
  const int worker = next_to_spawn_++;
  DL_ASSERT(workers_[static_cast<std::size_t>(worker)] == Worker::starting);
  workers_[static_cast<std::size_t>(worker)] = Worker::running;
  if (state_ == AgentState::draining) {
    if (killed_) return actions_.push_back(KillTree{});
    return signal_one(worker, drain_signal_);
  }
  if (next_to_spawn_ < config_.workers) return spawn_next();
  state_ = AgentState::running;
}

void AgentCore::on_spawn_failed(TimePoint now, const SpawnFailed& event) {
  auto& worker = workers_[static_cast<std::size_t>(event.worker)];
  DL_ASSERT(worker == Worker::starting || worker == Worker::running);
  worker = Worker::ended;
  if (state_ != AgentState::draining) return drain(now, AgentEnd::spawn_failed, SIGTERM);
  // The next round could not start it, either.
  if (why_ == AgentEnd::worker_failed) why_ = AgentEnd::spawn_failed;
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
  if (stop_signal_ == 0) {
    stop_signal_ = signal;
    stopped_at_ = now;
    if (state_ == AgentState::draining) return signal_all(signal);
    return drain(now, AgentEnd::interrupted, signal);
  }
  if (signal == stop_signal_ && now - stopped_at_ < kSameWish) return;
  if (signal == SIGHUP) return signal_all(signal);
  kill(now);
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
  drain_signal_ = signal;
  drain_deadline_ = deadline_after(now, config_.grace);
  signal_all(signal);
  if (config_.grace == Duration::zero()) kill(now);
}

void AgentCore::signal_all(int signal) {
  for (int w = 0; w < config_.workers; ++w) {
    if (workers_[static_cast<std::size_t>(w)] == Worker::running) signal_one(w, signal);
  }
}

void AgentCore::signal_one(int worker, int signal) {
  actions_.push_back(SendSignal{worker, signal});
  // A stopped process would not see it before it is continued.
  if (ends_the_job(signal)) actions_.push_back(SendSignal{worker, SIGCONT});
}

void AgentCore::kill(TimePoint now) {
  if (std::exchange(killed_, true)) return;
  actions_.push_back(KillTree{});
  drain_deadline_ = deadline_after(now, kKillPatience);
}

bool AgentCore::any_left() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](Worker w) { return w == Worker::starting || w == Worker::running; });
}

// Everybody has been reaped: the round is over.
void AgentCore::settle(TimePoint now) {
  if (state_ != AgentState::running && state_ != AgentState::draining) return;
  if (any_left()) return;
  const bool again = why_ == AgentEnd::worker_failed && stop_signal_ == 0 &&
                     round_ <= config_.max_restarts && now < job_deadline_;
  if (!again) return finish();
  actions_.push_back(KillTree{});  // what the workers of this round have left behind
  begin_round();
}

void AgentCore::finish() {
  state_ = AgentState::ended;
  actions_.push_back(KillTree{});
  actions_.push_back(Finish{why_, stop_signal_, !any_left()});
}

}  // namespace dlaunch
