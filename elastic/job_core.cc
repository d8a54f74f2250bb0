#include "elastic/job_core.h"

#include <signal.h>

#include <tuple>
#include <utility>

#include "base/check.h"
#include "elastic/rack_order.h"

namespace dlaunch {
namespace {

// A starting process takes the cores that the survivors need to receive the news of the loss; a new
// spare, which no rank waits for, takes those that they need to recover.
constexpr Duration kHeadStart = std::chrono::milliseconds(3);
constexpr Duration kSpareDelay = std::chrono::milliseconds(200);

RestartPolicyConfig restarts_of(const JobConfig& config) {
  RestartPolicyConfig restarts = config.restarts;
  restarts.slots = JobCore::slots(config);
  for (const int node : config.nodes) restarts.nodes = std::max(restarts.nodes, node + 1);
  return restarts;
}

}  // namespace

bool ends_the_job(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

JobOn JobCore::kind_of(const Event& event) {
  struct Kind {
    JobOn operator()(const Start&) const { return JobOn::start; }
    JobOn operator()(const Resume&) const { return JobOn::start; }
    JobOn operator()(const Spawned&) const { return JobOn::spawned; }
    JobOn operator()(const SpawnFailed&) const { return JobOn::failed; }
    JobOn operator()(const Ended& e) const { return e.well ? JobOn::well : JobOn::failed; }
    JobOn operator()(const Stuck&) const { return JobOn::failed; }
    JobOn operator()(const Ready&) const { return JobOn::member; }
    JobOn operator()(const Progress&) const { return JobOn::member; }
    JobOn operator()(const Signal& e) const {
      return ends_the_job(e.number) ? JobOn::stop : JobOn::pass;
    }
    JobOn operator()(const Resize&) const { return JobOn::change; }
    JobOn operator()(const Replace&) const { return JobOn::change; }
    JobOn operator()(const NodeLost&) const { return JobOn::node; }
    JobOn operator()(const NodeBack&) const { return JobOn::node; }
    JobOn operator()(const NodeDrain&) const { return JobOn::node; }
    JobOn operator()(const Clock&) const { return JobOn::clock; }
  };
  return std::visit(Kind{}, event);
}

JobCore::JobCore(const JobConfig& config)
    : config_(config),
      processes_(static_cast<std::size_t>(slots(config))),
      target_size_(config.size),
      wished_size_(config.size),
      policy_(restarts_of(config)) {
  lives_[static_cast<std::size_t>(Life::absent)] = slots();
  DL_ASSERT(config.size > 0 && config.min_size <= config.size && config.size <= config.max_size);
}

std::vector<JobCore::Action> JobCore::step(TimePoint now, const Event& event) {
  const JobOn kind = kind_of(event);
  const JobState from = state_;
  if (!job_handles(from, kind)) return {};
  actions_.clear();
  now_ = now;
  std::visit([&](const auto& what) { on(what); }, event);
  settle();
  DL_ASSERT(job_may_move({from, kind, state_}));
  return std::move(actions_);
}

void JobCore::set_life(Process& process, Life life) {
  --lives_[static_cast<std::size_t>(process.life)];
  ++lives_[static_cast<std::size_t>(life)];
  process.life = life;
}

void JobCore::set_ready(Process& process, bool ready) {
  ready_ += static_cast<int>(ready) - static_cast<int>(process.ready);
  process.ready = ready;
}

void JobCore::act(Action action) { actions_.push_back(std::move(action)); }

std::optional<TimePoint> JobCore::deadline() const {
  if (state_ != JobState::forming && state_ != JobState::active) return std::nullopt;
  TimePoint next = paused_at_ ? kNever : job_deadline_;
  if (state_ == JobState::active) next = std::min(next, shrink_at_);
  if (out_of_reach()) next = std::min(next, out_of_reach_until());
  if (count(Life::waiting) > 0) {
    for (const auto& process : processes_) {
      const bool waits = process.life == Life::waiting && process.start_at > now_;
      if (waits) next = std::min(next, process.start_at);
      next = std::min(next, given_up_at(process));
    }
  }
  if (count(Life::stuck) > 0) {
    for (const auto& process : processes_) next = std::min(next, awaited_until(process));
  }
  if (any_member_waits()) {
    for (const auto& process : processes_) {
      if (is_late(process, kNever)) next = std::min(next, process.join_by);
    }
  }
  for (const auto& [slot, accused] : accused_) {
    if (overstays(slot, kNever)) next = std::min(next, accused.ends_by);
  }
  return next == kNever ? std::nullopt : std::optional(next);
}

// -- Events

void JobCore::on(const Start&) {
  if (const auto& before = config_.before) {
    policy_.go_on(now_, before->restarts_used, before->restarts_left, 0);
  }
  if (config_.timeout > Duration::zero()) job_deadline_ = deadline_after(now_, config_.timeout);
  for (Slot slot = 0; slot < config_.size; ++slot) {
    roster_.push_back(slot);
    want(slot, slot, now_);
  }
  for (int spare = 0; spare < config_.spares; ++spare) want(config_.size + spare, -1, now_);
  round_ = config_.first_round;
  state_ = JobState::forming;
}

void JobCore::on(const Spawned& event) {
  if (at(event.slot).life == Life::starting) set_life(at(event.slot), Life::running);
}

void JobCore::on(const SpawnFailed& event) {
  set_life(at(event.slot), Life::absent);
  if (state_ != JobState::ending) return end(JobEnding::spawn_failed, SIGTERM);
  if (why_ == JobEnding::worker_failed) why_ = JobEnding::spawn_failed;
}

void JobCore::on(const Ended& event) {
  Process& process = at(event.slot);
  const Life was = process.life;
  set_life(process, Life::absent);
  process.linked = false;
  process.end_by = kNever;
  set_ready(process, false);
  process.in_round = 0;
  accused_.erase(event.slot);
  const int left = std::exchange(process.leaving, -1);
  if (state_ == JobState::ending) return;
  if (left >= 0 && !event.well) lose_leaver(left);
  if (!process.wanted) return;
  if (was == Life::stopping || was == Life::stuck) {
    // It had succeeded before: nobody ends well because of SIGKILL.
    const bool by_itself = event.by_itself || process.killed;
    const bool had_succeeded = are_tasks() && event.well && by_itself && process.rank >= 0;
    set_life(process, had_succeeded ? Life::done : Life::waiting);
    // It ended by itself: the failure that was reported first may have followed from this one.
    if (event.well || event.consequence || !event.by_itself) return;
    const auto refusal = policy_.failed_too(now_, failure_of(event));
    if (refusal && is_refused(*refusal)) end(JobEnding::worker_failed, SIGTERM);
    return;
  }
  // Members that need it have asked for the next round, or will: then it comes back.
  const bool in_need = state_ == JobState::forming && any_member_waits();
  if (event.well && process.rank >= 0 && !in_need) {
    set_life(process, Life::done);
  } else if (event.well && process.rank < 0) {
    process.wanted = false;  // a spare of a program that does not wait for a rank
  } else {
    // If no member was lost before, this failure has another cause.
    if (event.consequence && state_ == JobState::forming) return lose(event.slot, std::nullopt);
    lose(event.slot, failure_of(event));
  }
}

void JobCore::on(const Stuck& event) {
  Process& process = at(event.slot);
  const bool ran = is_up(process);  // an earlier leader has stopped it
  set_life(process, Life::stuck);
  process.linked = false;
  set_ready(process, false);
  if (state_ == JobState::ending) return;
  if (const int left = std::exchange(process.leaving, -1); left >= 0) lose_leaver(left);
  // Of a plain program it is nothing but a process whose place an earlier leader gave up.
  if (ran && process.rank < 0 && !elastic_) process.wanted = false;
  if (ran && process.wanted) lose(event.slot, failure_of(event.slot, FailureKind::lost));
  if (!process.wanted || state_ == JobState::ending) return;
  const Duration longer = kStuckPatience - kKillPatience;
  process.end_by = deadline_after(now_, longer);
  act(AwaitEnd{event, longer});
}

// The process may keep its memory and GPUs for ever.
void JobCore::give_up_stuck(Slot slot) {
  const int rank = at(slot).rank;
  if (rank >= 0 && !give_place(slot)) {
    refuse("dlaunch cannot end a worker, so no process can take its place", "");
    return end(JobEnding::worker_failed, SIGTERM);
  }
  at(slot).wanted = false;
  lower_target();
  if (rank >= 0) form(rank);
}

void JobCore::on(const Ready& event) {
  Process& process = at(event.slot);
  if (process.life != Life::running || event.left != process.in_round) return;
  elastic_ = process.linked = true;
  set_ready(process, true);
  process.version = event.version;
  if (process.rank < 0) return;
  if (event.left == live_) {
    note_why(event);
    note_corrupt(event);
  }
  if (!announced_) state_ = JobState::forming;  // until now no worker had asked for it
  if (!announced_ && !any_member_done()) return;
  // A peer that finished too early must come back.
  if (any_member_done() &&
      is_refused(policy_.failed(now_, failure_of(event.slot, FailureKind::lost)))) {
    return end(JobEnding::worker_failed, SIGTERM);
  }
  form(-1);
}

void JobCore::on(const Progress& event) {
  at(event.slot).version = event.version;
  note_version(event.version);
  if (at(event.slot).rank < 0) return;
  reported_ = true;
  shrink_on();
}

void JobCore::note_version(std::uint64_t version) {
  if (version <= version_) return;
  commits_ += version - version_;
  committed_ = now_;
  version_ = version;
}

void JobCore::on(const Signal& event) {
  if (!ends_the_job(event.number)) {
    pause(event.number);
    return act(HandOn{event.number});
  }
  if (stop_signal_ == 0) {
    stop_signal_ = event.number;
    stopped_at_ = now_;
    if (state_ == JobState::ending) return stop_all(event.number);
    return end(JobEnding::interrupted, event.number);
  }
  if (now_ - stopped_at_ < kSameWish) return;
  // A closing terminal and its shell send a SIGHUP each, and a service manager its SIGTERM, too:
  // that does not mean impatience.
  if (event.number == SIGHUP) return stop_all(SIGHUP);
  if (stop_signal_ != SIGHUP) return stop_all(SIGKILL);
  stop_signal_ = event.number;
  stopped_at_ = now_;
  stop_all(event.number);
}

void JobCore::pause(int signal) {
  if (signal == SIGTSTP && !paused_at_) paused_at_ = now_;
  if (signal != SIGCONT || !paused_at_) return;
  if (job_deadline_ != kNever) job_deadline_ = deadline_after(job_deadline_, now_ - *paused_at_);
  paused_at_.reset();
}

void JobCore::on(const Resize& event) {
  target_size_ = wished_size_ = std::clamp(event.size, 1, config_.max_size);
  const auto waiting = without_rank();
  int more = std::max(target_size_ - size(), 0) + config_.spares - static_cast<int>(waiting.size());
  for (auto slot = waiting.rbegin(); more < 0 && slot != waiting.rend(); ++slot) {
    if (is_member(*slot)) continue;  // a former one, which the others still need in this round
    dismiss(*slot);                  // a newcomer for an earlier, larger size
    ++more;
  }
  if (target_size_ < size()) {
    shrink_on();
    return drop_unlinked();
  }
  // Newcomers first start and wait for the round; only then the others leave theirs.
  for (Slot slot = 0; slot < slots() && more > 0; ++slot) {
    if (at(slot).wanted || at(slot).life == Life::stuck || !takes_in(slot)) continue;
    want(slot, -1, now_);
    --more;
  }
  lower_target();
}

void JobCore::on(const Replace& event) {
  if (at(event.slot).life != Life::running) return;
  stop(event.slot, SIGKILL);
  if (!at(event.slot).wanted) return;
  const int before = size();
  lose(event.slot, failure_of(event.slot, event.kind), event.leaves);
  // A host that comes back does not bring it back.
  if (event.leaves && size() < before) wished_size_ = std::max(size(), wished_size_ - 1);
}

void JobCore::on(const Clock&) {
  if (!paused_at_ && now_ >= job_deadline_) return end(JobEnding::timed_out, SIGTERM);
  if (now_ >= shrink_at_) {
    shrink_at_ = kNever;
    shrink_on();
  }
  for (const auto& process : processes_) {
    if (given_up_at(process) > now_) continue;
    refuse("its host did not come back within --join-timeout", "--join-timeout");
    return end(JobEnding::worker_failed, SIGTERM);
  }
  for (Slot slot = 0; slot < slots(config_) && state_ != JobState::ending; ++slot) {
    if (awaited_until(at(slot)) <= now_) give_up_stuck(slot);
    if (is_late(at(slot), now_) && any_member_waits()) {
      on(Replace{slot, FailureKind::lost});
    }
    if (overstays(slot, now_)) on(Replace{slot, FailureKind::corrupt});
  }
}

// -- Decisions

// A newcomer that is late at `by` (kNever: ever), if others wait for it.
bool JobCore::is_late(const Process& process, TimePoint by) const {
  if (state_ != JobState::forming || process.rank < 0 || process.life != Life::running)
    return false;
  return !process.ready && process.in_round == 0 && process.join_by <= by;
}

// One member alone may be wrong: its own data may be the corrupt ones.
void JobCore::note_corrupt(const Ready& event) {
  if (!event.corrupt || event.corrupt_rank < 0) return;
  const auto rank = static_cast<std::size_t>(event.corrupt_rank);
  if (rank >= members_.size() || members_[rank] == event.slot) return;
  if (!joined(members_[rank])) return;  // it has ended, and its successor is another process
  Accused& accused = accused_[members_[rank]];
  if (accused.by.size() >= 2) return;
  accused.by.insert(event.slot);
  if (accused.by.size() == 2) accused.ends_by = deadline_after(now_, kCorruptEnds);
}

// A member of the last round whose data are corrupt is still there at `by` (kNever: ever).
bool JobCore::overstays(Slot slot, TimePoint by) const {
  if (!accused(slot) || state_ != JobState::forming) return false;
  const Process& process = at(slot);
  const bool stayed = process.life == Life::running && process.rank >= 0 && !process.ready &&
                      process.in_round == live_;
  return stayed && accused_.at(slot).ends_by <= by;
}

// Failures of tasks share a round only while the next one is formed.
Failure JobCore::failure_of(Slot slot, FailureKind kind) const {
  return {.round = std::max(at(slot).round, all_were_there_),
          .slot = slot,
          .node = node_of(slot),
          .kind = kind,
          .version = commits_,
          .after = since_start_or_commit(),
          .dispensable = may_shrink() || at(slot).rank < 0};
}

Failure JobCore::failure_of(const Ended& event) const {
  Failure failure = failure_of(event.slot, event.kind);
  failure.code = event.well ? 0 : event.code;
  // Two tasks that fail alike do not show that either would fail again.
  const auto whose = are_tasks() ? static_cast<std::uint64_t>(event.slot) + 1 : 0;
  failure.signature = event.signature == 0 ? 0 : event.signature + whose;
  failure.exact = event.exact + whose;
  failure.second_hand = event.second_hand || event.consequence;
  failure.after = std::min(failure.after, event.ran);
  return failure;
}

bool JobCore::is_refused(const RestartDecision& decision) {
  if (decision.restart) {
    refuse("", "");
  } else {
    refuse(decision.why, std::string(option_of(decision.reason)));
  }
  return !decision.restart;
}

void JobCore::refuse(std::string why, std::string option) {
  why_no_restart_ = std::move(why);
  ended_by_ = std::move(option);
}

// Without a failure it costs no restart. leaves: as in Replace.
void JobCore::lose(Slot slot, const std::optional<Failure>& failure, bool leaves) {
  Process& process = at(slot);
  failed_node_ = node_of(slot);
  if (process.rank >= 0) keep_leavers();
  const int rank = process.rank;
  lost_ |= rank >= 0;
  RestartDecision decision{.restart = true};
  if (failure) decision = policy_.failed(now_, *failure);
  if (is_refused(decision)) {
    if (rank < 0) return static_cast<void>(process.wanted = false);
    if (!may_shrink()) return end(JobEnding::worker_failed, SIGTERM);
    leave_roster(rank);
    lower_target();
    return form(rank);
  }
  const TimePoint spare_at = deadline_after(now_, std::max(decision.delay, kSpareDelay));
  if (any_linked()) decision.delay = std::max(decision.delay, kHeadStart);
  const TimePoint start_at = deadline_after(now_, decision.delay);
  const bool drained = drained_.contains(failed_node_);
  if (rank < 0) return drained ? dismiss(slot) : want(slot, -1, spare_at);
  if ((drained || leaves) && give_place(slot)) {
    lower_target();
    return form(rank);
  }
  const bool corrupt = failure && failure->kind == FailureKind::corrupt;
  if (elastic_ && hand_to_spare(rank, corrupt ? failed_node_ : -1)) process.rank = -1;
  want(slot, process.rank, process.rank < 0 ? spare_at : start_at);
  form(rank);
}

// The members that it should have gone on with until their next commit cannot reach that any more.
void JobCore::lose_leaver(int rank) {
  const bool others_leave =
      std::ranges::any_of(processes_, [](const Process& p) { return p.leaving >= 0; });
  others_leave ? form(rank) : act(Fence{round_, rank});
}

// To the first of those that are nearest to the rank's former place: on its own node, so that the
// hosts keep as many ranks as they had, or else below the same switches. A spare on the broken node
// takes the rank only if there is no other.
bool JobCore::hand_to_spare(int rank, int broken_node) {
  const auto free = spares();
  if (free.empty()) return false;
  Slot& place = roster_[static_cast<std::size_t>(rank)];
  const auto nearness = [&](Slot spare) {
    return std::tuple(node_of(spare) != broken_node, node_of(spare) == node_of(place),
                      shared_switches(rack_of(spare), rack_of(place)));
  };
  place = *std::ranges::max_element(free, {}, nearness);
  at(place).rank = rank;
  return true;
}

std::string_view JobCore::rack_of(Slot slot) const {
  if (config_.racks.empty()) return "";
  return config_.racks[static_cast<std::size_t>(node_of(slot))];
}

// Whether the others can go on without so many.
bool JobCore::may_shrink(int by) const {
  if (size() - by < config_.min_size || any_member_done() || are_tasks()) return false;
  return std::ranges::all_of(roster_, [&](Slot slot) { return stays(slot) || !is_up(at(slot)); });
}

// The processes that can have a place: those that wait for one; for a program that is not elastic,
// those that are not started without one.
std::vector<Slot> JobCore::spares() const {
  std::vector<Slot> found;
  for (Slot slot = 0; slot < slots(); ++slot) {
    const Process& process = at(slot);
    const bool may_come = process.ready || (held_back(process) && takes_in(slot));
    if (process.rank < 0 && process.wanted && may_come) found.push_back(slot);
  }
  return found;
}

// Those, and the processes that are on their way to that, on nodes that stay.
std::vector<Slot> JobCore::without_rank() const {
  std::vector<Slot> found;
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (at(slot).wanted && at(slot).rank < 0 && takes_in(slot)) found.push_back(slot);
  }
  return found;
}

// Gives the next round its number. Stops members that cannot go on to it. A member that has
// finished comes back, because the others will need it, unless it was a task.
void JobCore::form(int lost_rank) {
  ++round_;
  announced_ = false;
  state_ = JobState::forming;
  if (lost_rank >= 0) keep_leavers();
  leave_drained();
  for (const Slot slot : roster_) {
    if (at(slot).life == Life::done && !are_tasks()) want(slot, at(slot).rank, now_);
    if (!is_up(at(slot)) || stays(slot)) continue;
    if (lost_rank < 0) lost_rank = at(slot).rank;  // the others cannot reach a commit with it
    stop(slot, SIGTERM);
  }
  act(Fence{round_, lost_rank});
}

bool JobCore::stays(Slot slot) const {
  switch (config_.scope) {
    case RestartScope::automatic:
      return at(slot).linked;
    case RestartScope::worker:
      return true;
    case RestartScope::node:
      return at(slot).linked && node_of(slot) != failed_node_;
    case RestartScope::job:
      break;
  }
  return false;
}

void JobCore::want(Slot slot, int rank, TimePoint start_at) {
  Process& process = at(slot);
  process.wanted = true;
  process.leaving = -1;
  process.rank = rank;
  process.start_at = start_at;
  if (process.life == Life::absent || process.life == Life::done) set_life(process, Life::waiting);
}

void JobCore::stop(Slot slot, int signal) {
  Process& process = at(slot);
  if (process.life == Life::waiting) set_life(process, Life::absent);
  if (!is_up(process) && process.life != Life::stopping) return;
  if (process.life != Life::stopping) process.killed = signal == SIGKILL;
  set_life(process, Life::stopping);
  process.linked = false;
  set_ready(process, false);
  act(StopWorkers{{slot}, signal});
}

// A linked worker stops when the others have gone on without it: they may still need what it is
// about to commit.
void JobCore::leave_roster(int rank) {
  const Slot slot = roster_[static_cast<std::size_t>(rank)];
  Process& process = at(slot);
  roster_.erase(roster_.begin() + rank);
  process.rank = -1;
  if (process.linked && is_up(process) && process.in_round > 0) {
    process.wanted = false;
    process.leaving = rank;
  } else {
    dismiss(slot);
  }
  number_ranks();
}

void JobCore::end(JobEnding why, int signal) {
  state_ = JobState::ending;
  why_ = why;
  stop_all(signal);
}

void JobCore::stop_all(int signal) {
  for (Slot slot = 0; slot < slots(config_); ++slot) stop(slot, signal);
}

}  // namespace dlaunch
