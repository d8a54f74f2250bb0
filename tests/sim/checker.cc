#include "tests/sim/checker.h"

#include <algorithm>

#include <fmt/format.h>

namespace dlaunch::sim {
namespace {

// The last process started in a slot.
const Worker* last_in(const Stage& stage, Slot slot) {
  for (auto it = stage.workers.rbegin(); it != stage.workers.rend(); ++it) {
    if (it->slot == slot) return &*it;
  }
  return nullptr;
}

}  // namespace

void Checker::check(const JobCore::Action& action) {
  must(!finish_, "the job goes on after its end");
  std::visit([this](const auto& what) { check_action(what); }, action);
}

void Checker::check(const AgentCore::Action& action) {
  must(!finish_, "processes are started or stopped after the job's end");
  if (const auto* spawn = std::get_if<AgentCore::Spawn>(&action)) {
    must(shell_.runs_in(spawn->slot) == 0, "a slot runs two processes");
  }
  const auto* stuck = std::get_if<AgentCore::TellStuck>(&action);
  if (stuck != nullptr && shell_.runs_in(stuck->slot) != 0) {
    const Duration lasts = stage_.worker(shell_.runs_in(stuck->slot)).frozen_for;
    frozen |= lasts + stage_.scenario.pace.notice >= kStuckPatience;
  }
}

void Checker::check_action(const JobCore::StartWorkers& start) {
  std::set<Slot> slots;
  for (const auto& place : start.places) {
    must(slots.insert(place.slot).second, "a slot is started twice");
    must(shell_.runs_in(place.slot) == 0, "a slot is started that still runs");
    must(shell_.reachable(place.slot), "a slot is started on a node that is lost");
    must(place.rank < shell_.job().size(), "a rank beyond the roster is started");
    must(place.rank >= 0 || stage_.scenario.program != Program::plain,
         "a plain program is started without a rank");
    must(!is_done_task(place.slot), "a task is done again");
  }
  const auto has_finished = [&](Slot slot) {
    const Worker* last = last_in(stage_, slot);
    return last != nullptr && last->finished && !last->told_to_stop &&
           last->life == Worker::reaped &&
           ordered <= last->ended;  // later the agent could not know
  };
  const bool all = !roster_.empty() && std::all_of(roster_.begin(), roster_.end(), has_finished);
  // A growing round may take in waiting processes, which start the work again.
  must(!all || grown, "all members have finished, and some are started again");
  must(start.round >= announced_, "processes are started for a round that is over");
}

// It has ended well by itself, and its leader knows that, from its own events or from the record.
bool Checker::is_done_task(Slot slot) const {
  if (stage_.scenario.program != Program::plain) return false;
  if (stage_.scenario.job.scope != RestartScope::worker || resized) return false;
  const Worker* last = last_in(stage_, slot);
  return last != nullptr && last->end.well && !last->told_to_stop && !last->end_unknown &&
         last->life == Worker::reaped;
}

// A survivor must go on: a linked worker stops only on a request.
void Checker::check_action(const JobCore::StopWorkers& stop) {
  const auto& job = shell_.job();
  if (job.state() == JobState::ending) return;
  if (stage_.scenario.job.scope != RestartScope::automatic) return;
  if (!std::holds_alternative<JobCore::Ended>(event_) &&
      !std::holds_alternative<JobCore::NodeLost>(event_) &&
      !std::holds_alternative<JobCore::Ready>(event_)) {
    return;
  }
  for (const Slot slot : stop.slots) {
    const int number = shell_.worker_in(slot);
    if (number == 0 || !stage_.worker(number).connected) continue;
    // A resize left it out, and the others have gone on without it.
    must(resized && job.rank_of(slot) < 0, "a survivor is stopped");
  }
}

void Checker::check_action(const JobCore::Fence& fence) {
  const bool again = fence.round == fenced_ && fence.lost >= 0;
  must((fence.round > fenced_ || again) && fence.round > announced_,
       "a fence for a round that was");
  fenced_ = fence.round;
}

void Checker::check_action(const JobCore::Announce& announce) {
  const JobConfig& config = stage_.scenario.job;
  const int size = static_cast<int>(announce.slots.size());
  must(announce.round > announced_, "a round's number is announced twice, or one below it");
  must(announce.round >= fenced_, "a round is announced that is fenced off");
  must(1 <= size && size <= config.max_size, "a round of a size that is not allowed");
  const std::set<Slot> once(announce.slots.begin(), announce.slots.end());
  must(once.size() == announce.slots.size(), "a slot has two ranks");
  for (const Slot slot : announce.slots) check_member(announce, slot);
  announced_ = announce.round;
  roster_ = announce.slots;
  ++announcements_;
}

void Checker::check_action(const JobCore::AwaitEnd& what) {
  must(shell_.job().state() != JobState::ending, "a job that ends waits longer for a process");
  must(shell_.runs_in(what.of.slot) != 0, "the job waits for a process that has ended");
}

void Checker::check_member(const JobCore::Announce& announce, Slot slot) {
  const int number = shell_.worker_in(slot);
  if (number == 0) {
    return stage_.fail(
        fmt::format("round {} has a member in slot {} that does not run", announce.round, slot));
  }
  const Worker& worker = stage_.worker(number);
  if (worker.asks) return;
  stage_.fail(fmt::format("worker {} is in round {} and did not ask", number, announce.round));
}

void Checker::check_action(const JobCore::Finish& finish) {
  finish_ = finish;
  bool any = false;
  for (Slot slot = 0; slot < shell_.slots(); ++slot) any |= shell_.worker_in(slot) != 0;
  must(finish.all_reaped == !any, any ? "the job ended and left processes behind unnoticed"
                                      : "the job says that processes are left, and none is");
  check_end(finish);
}

// Every end needs a reason.
void Checker::check_end(const JobCore::Finish& finish) {
  const Scenario& scenario = stage_.scenario;
  const bool used_up = shell_.job().restarts_used() >= scenario.max_restarts;
  switch (finish.end) {
    case JobEnding::succeeded:
      check_success();
      break;
    case JobEnding::worker_failed:
      must(used_up || frozen || node_lost, "the job gave up with restarts left");
      break;
    case JobEnding::given_up:
      stage_.fail("no member gave up its round, but the job says so");
      break;
    case JobEnding::spawn_failed:
      must(spawn_failed, "no process failed to start, but the job says so");
      break;
    case JobEnding::interrupted:
      must(signalled && finish.signal != 0, "nobody interrupted the job, but it says so");
      break;
    case JobEnding::setup_failed:
      stage_.fail("the job had begun, but says that it could not");
      break;
    case JobEnding::timed_out:
      must(scenario.job.timeout > Duration(0), "the job timed out without a time-out");
      break;
  }
  if (!scenario.faults.empty() || scenario.program == Program::mixed) return;
  must(finish.end == JobEnding::succeeded, "nothing went wrong, but the job failed");
  must(announcements_ <= 1, "nothing went wrong, but there was a second round");
  must(shell_.job().restarts_used() == 0, "nothing went wrong, but a restart was used");
}

void Checker::check_success() {
  const auto& job = shell_.job();
  for (Slot slot = 0; slot < shell_.slots(); ++slot) {
    if (job.rank_of(slot) < 0) continue;
    const Worker* last = last_in(stage_, slot);
    must(last != nullptr && last->life == Worker::reaped && last->end.well,
         "the job succeeded with a member that did not");
    if (!stage_.ended_early && last != nullptr) {
      must(last->finished, "the job succeeded with a member that did not come to its end");
    }
  }
}

void Checker::after_all() {
  const Scenario& scenario = stage_.scenario;
  const auto& job = shell_.job();
  must(job.restarts_used() <= scenario.max_restarts, "more restarts than there are");
  must(job.state() != JobState::ended || finish_, "the job ended without saying so");
  for (Slot slot = 0; slot < shell_.slots(); ++slot) {
    const int number = shell_.worker_in(slot);
    if (number == 0) continue;
    const Worker& worker = stage_.worker(number);
    must(!worker.told_to_stop || worker.life != Worker::running || worker.frozen ||
             stage_.now <= *worker.told_to_stop + scenario.grace + std::chrono::milliseconds(1),
         "a worker runs on after its grace");
  }
  const bool goes_on = job.state() == JobState::forming || job.state() == JobState::active;
  must(scenario.job.timeout == Duration(0) || !goes_on || leader_lost ||
           stage_.now <= kStart + scenario.job.timeout + std::chrono::milliseconds(1),
       "the job goes on after its time-out");
  must(timer_rang == kNever || shell_.timer() != timer_rang, "the timer spins");
  timer_rang = kNever;
}

// No member waits for a newcomer longer than join_timeout.
void Checker::check_joins() {
  const auto& job = shell_.job();
  if (!shell_.leads()) return;
  if (job.state() != JobState::forming && job.state() != JobState::active) return;
  TimePoint waits = kNever;  // since when some member waits
  for (Slot slot = 0; slot < shell_.slots(); ++slot) {
    const int number = shell_.worker_in(slot);
    if (number == 0 || job.rank_of(slot) < 0) continue;
    const Worker& worker = stage_.worker(number);
    const bool waiting = worker.asks && !worker.told_to_stop && worker.life == Worker::running;
    if (waiting) waits = std::min(waits, worker.asked);
  }
  if (waits == kNever) return;
  for (Slot slot = 0; slot < shell_.slots(); ++slot) {
    const int number = shell_.worker_in(slot);
    if (number == 0 || job.rank_of(slot) < 0) continue;
    const Worker& worker = stage_.worker(number);
    if (worker.connected || worker.told_to_stop || worker.life != Worker::running) continue;
    const TimePoint late =
        std::max(waits, std::max(worker.started, led_since) + stage_.scenario.job.join_timeout);
    must(stage_.now <= late + std::chrono::milliseconds(1), "a newcomer is waited for too long");
  }
}

// -- The state

// A member of a round that is over may still finish the step that all had contributed to, but no
// other.
void Checker::committed(const Worker& worker) {
  if (worker.round < newest_round_) {
    late_steps_[worker.round].insert(worker.collective);
    must(late_steps_[worker.round].size() <= 1, "two rounds get on at once");
  }
  for (const Worker& other : stage_.workers) {
    if (other.life != Worker::running || other.round != worker.round || !other.synced) continue;
    const auto [less, more] = std::minmax(worker.version, other.version);
    must(more - less <= 1, "two members' versions differ by more than one");
  }
}

// They must agree on the newest version that a living worker may bring.
void Checker::agreed(int round, std::uint64_t version) {
  newest_round_ = std::max(newest_round_, round);
  for (const Worker& worker : stage_.workers) {
    if (worker.life != Worker::running || worker.told_to_stop || worker.cut_off) continue;
    // The others do not wait for a worker that a resize leaves out.
    const bool in = std::find(roster_.begin(), roster_.end(), worker.slot) != roster_.end();
    if (worker.version <= version || (resized && !in)) continue;
    stage_.fail(fmt::format("worker {} holds version {}, and the others go on with {}",
                            worker.number, worker.version, version));
  }
}

void Checker::exits(const Worker& worker) {
  if (!worker.finished || !worker.linked) return;
  must(worker.version == static_cast<std::uint64_t>(stage_.scenario.steps) &&
           worker.state == final_state(stage_.scenario.steps),
       "the final state is not that of an undisturbed run");
}

}  // namespace dlaunch::sim
