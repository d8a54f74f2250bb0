// JobCore: the consequences of the members' present states, and their words.
#include <signal.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "elastic/job_core.h"

namespace dlaunch {
namespace {

// Between two rounds of a shrinking job that reports no commits, from the Announce of the first.
constexpr Duration kSilentShrink = std::chrono::seconds(5);

}  // namespace

void JobCore::settle() {
  if (state_ == JobState::forming || state_ == JobState::active) {
    if (all_work_is_done()) {
      end(JobEnding::succeeded, SIGTERM);
    } else {
      replace_absent();
      grow();
      start_due();
      announce();
    }
  }
  if (state_ == JobState::ending && !any_alive()) finish();
}

int JobCore::resized_from() const {
  const int before = static_cast<int>(members_.size());
  const bool loses = lost_ || earlier_loss_;
  const bool resizes = state_ == JobState::forming && !loses && before != size();
  return resizes ? before : 0;
}

bool JobCore::some_stay() const {
  return std::ranges::any_of(
      roster_, [&](Slot slot) { return is_up(at(slot)) || at(slot).life == Life::done; });
}

// If no member of the roster stays, all start together, after the last of the others has ended.
void JobCore::start_due() {
  if (count(Life::waiting) == 0 && some_stay()) return;
  bool some_go = false, all_due = true;
  for (const Slot slot : roster_) {
    const Process& process = at(slot);
    some_go |= is_going(process);
    all_due &= process.life != Life::waiting || may_start(process);
  }
  const bool together = !some_stay();
  if (together && (some_go || !all_due || out_of_reach())) return;
  if (together) enter_round();
  StartWorkers start{round_, {}, together, starts_ + 1};
  for (Slot slot = 0; slot < slots(config_); ++slot) {
    Process& process = at(slot);
    if (process.life != Life::waiting || !may_start(process)) continue;
    set_life(process, Life::starting);
    process.version = 0;
    process.round = round_;
    process.start = start.number;
    process.join_by = deadline_after(now_, config_.join_timeout);
    start.places.push_back({slot, process.rank});
  }
  if (start.places.empty()) return;
  ++starts_;
  act(std::move(start));
}

bool JobCore::may_start(const Process& process) const {
  if (held_back(process)) return false;
  return process.start_at <= now_ && reachable(static_cast<Slot>(&process - processes_.data()));
}

// The time until which a member waits for its node.
TimePoint JobCore::given_up_at(const Process& process) const {
  if (lost_nodes_.empty() || process.life != Life::waiting || process.rank < 0) return kNever;
  const auto lost = lost_nodes_.find(node_of(static_cast<Slot>(&process - processes_.data())));
  return lost == lost_nodes_.end() ? kNever : deadline_after(lost->second, config_.join_timeout);
}

int JobCore::node_of(Slot slot) const {
  return config_.nodes.empty() ? 0 : config_.nodes[static_cast<std::size_t>(slot)];
}

// Takes the newcomers for a larger size into the roster, once all of them are there. A program that
// is not elastic is not interrupted for that: it gets them when all start again.
void JobCore::grow() {
  const int more = target_size_ - size();
  if (more <= 0 || any_member_done()) return;
  const auto joiners = spares();
  if (static_cast<int>(joiners.size()) < more) return;
  if (!elastic_ && some_stay()) return;
  for (int i = 0; i < more; ++i) {
    at(joiners[static_cast<std::size_t>(i)]).rank = size();
    roster_.push_back(joiners[static_cast<std::size_t>(i)]);
  }
  form(-1);
}

// Shrinks in one round: at the commit at which the members leave theirs, the leaving ones hand
// their shards to the others. Before the round's first commit the members may still meet, and a
// Fence would end the round at once. So the change waits for that commit.
void JobCore::shrink_on() {
  if (state_ != JobState::active || !announced_) return;
  shrink_at_ = kNever;
  if (any_member_done()) return;
  const auto ranks = ranks_to_go();
  if (ranks.empty()) return;
  const TimePoint silent = deadline_after(live_since_, kSilentShrink);
  if (!reported_ && now_ < silent) {
    shrink_at_ = silent;
    return;
  }
  for (const int rank : ranks) leave_roster(rank);
  target_size_ = std::min(target_size_, size());
  form(-1);
}

// The ranks on nodes that are to be lost, as far as min_size allows; the highest comes first.
std::vector<int> JobCore::drained_ranks() const {
  std::vector<int> ranks;
  for (int rank = size() - 1; rank >= 0 && !drained_.empty(); --rank) {
    if (size() - static_cast<int>(ranks.size()) <= config_.min_size) break;
    const Slot slot = roster_[static_cast<std::size_t>(rank)];
    if (drained_.contains(node_of(slot))) ranks.push_back(rank);
  }
  return ranks;
}

// Those, and the highest of the others if the job must be smaller still.
std::vector<int> JobCore::ranks_to_go() const {
  std::vector<int> ranks = drained_ranks();
  std::set<int> going(ranks.begin(), ranks.end());
  for (int rank = size() - 1; size() - static_cast<int>(going.size()) > target_size_; --rank) {
    going.insert(rank);
  }
  return {going.rbegin(), going.rend()};
}

// A loss may interrupt leaving members that hand over their shards, so they are members of one more
// round, with the same ranks.
void JobCore::keep_leavers() {
  std::map<int, Slot> leavers;
  for (Slot slot = 0; slot < slots(); ++slot) {
    const Process& process = at(slot);
    if (process.leaving >= 0 && is_up(process) && stays(slot)) leavers[process.leaving] = slot;
  }
  if (leavers.empty()) return;
  for (const auto& [rank, slot] : leavers) {
    if (size() >= config_.max_size) break;
    at(slot).leaving = -1;
    at(slot).wanted = true;
    roster_.insert(roster_.begin() + std::min(rank, size()), slot);
  }
  number_ranks();
  target_size_ = std::min(wished_size_, size());
}

void JobCore::number_ranks() {
  for (int rank = 0; rank < size(); ++rank) at(roster_[static_cast<std::size_t>(rank)]).rank = rank;
}

// If all start again, none starts on a node that is to be lost, as far as min_size allows.
void JobCore::leave_drained() {
  if (are_tasks()) return;
  const auto goes_on = [&](Slot slot) { return is_up(at(slot)) && stays(slot); };
  if (std::ranges::any_of(roster_, goes_on)) return;
  for (const int rank : drained_ranks()) leave_roster(rank);
  lower_target();
}

std::vector<int> JobCore::ranks_on(int node) const {
  std::vector<int> ranks;
  for (Slot slot = 0; slot < slots(); ++slot) {
    const bool counts = rank_of(slot) >= 0 && at(slot).life != Life::done;
    if (node_of(slot) == node && counts) ranks.push_back(rank_of(slot));
  }
  return ranks;
}

bool JobCore::nobody_on(int node) const {
  for (Slot slot = 0; slot < slots(); ++slot) {
    const Process& process = at(slot);
    const bool is_there = process.wanted || is_up(process) || is_going(process);
    if (node_of(slot) == node && is_there) return false;
  }
  return true;
}

// While a round is formed: drops those surplus members that have not come to it and hold no state.
void JobCore::drop_unlinked() {
  const int before = size();
  while (target_size_ < size() && !at(roster_.back()).linked) leave_roster(size() - 1);
  if (size() < before) form(-1);
}

void JobCore::announce() {
  if (announced_ || !all_are_there() || out_of_reach()) return;
  const auto is = [&](bool Process::*what) {
    return [this, what](Slot slot) { return at(slot).*what; };
  };
  if (ready_ >= size() && std::ranges::all_of(roster_, is(&Process::ready))) {
    // The versions that members reported when they left the round before count from now on: chance
    // decides whether these reports or the end of the lost process arrives first.
    std::uint64_t newest = 0;
    for (const Slot slot : roster_) newest = std::max(newest, at(slot).version);
    note_version(newest);
    if (ends_given_up()) return;
    for (const Slot slot : roster_) {
      set_ready(at(slot), false);
      at(slot).in_round = at(slot).round = round_;
    }
    announced_ = true;
    enter_round();
    failed_node_ = -1;
    state_ = JobState::active;
    commits_before_ = commits_;
    version_ = newest;  // lower than before if all who held it have died
    reported_ = false;
    act(Announce{round_, roster_});
    for (Slot slot = 0; slot < slots(config_); ++slot) {
      if (std::exchange(at(slot).leaving, -1) >= 0) stop(slot, SIGTERM);
    }
    shrink_on();  // a change that is due waits for the first commit
  } else if (std::ranges::none_of(roster_, is(&Process::linked))) {
    state_ = JobState::active;
    if (are_tasks()) all_were_there_ = round_;
  }
}

// Different results explain the other words.
void JobCore::note_why(const Ready& event) {
  const bool corrupt = event.corrupt && event.corrupt_rank < 0;
  if (corrupt && !std::exchange(corrupt_, true)) given_up_.clear();
  if (corrupt == corrupt_) given_up_ = std::max(given_up_, event.why);
}

// All have left a round without a loss: that may happen in every round. Each of these rounds may
// have made a commit before its results differed.
bool JobCore::ends_given_up() {
  const bool by_themselves = !std::exchange(lost_, false) && (corrupt_ || !given_up_.empty());
  const bool in_vain = by_themselves && (corrupt_ || commits_ == commits_before_);
  const auto words = std::hash<std::string>()(given_up_);
  const Failure failure{.round = live_,
                        .kind = corrupt_ ? FailureKind::corrupt : FailureKind::gave_up,
                        .signature = words,
                        .exact = words,
                        .version = commits_,
                        .after = since_start_or_commit()};
  if (!in_vain || !is_refused(policy_.given_up(now_, failure))) {
    given_up_.clear();
    corrupt_ = false;
    return false;
  }
  end(JobEnding::given_up, SIGTERM);
  return true;
}

// From now on the round may begin its work.
void JobCore::enter_round() {
  live_ = round_;
  live_since_ = now_;
  members_ = roster_;
  accused_.clear();
  cut_off_.clear();
  earlier_loss_ = false;
}

TimePoint JobCore::out_of_reach_until() const {
  if (members_.empty() || cut_off_.size() < members_.size()) return kNever;
  TimePoint until = kNever;
  for (const Slot slot : cut_off_) {
    until = std::min(until, deadline_after(lost_nodes_.at(node_of(slot)), config_.node_ends));
  }
  return until;
}

void JobCore::finish() {
  state_ = JobState::ended;
  const bool stuck =
      std::ranges::any_of(processes_, [](const Process& p) { return p.life == Life::stuck; });
  act(Finish{why_, stop_signal_, !stuck, why_no_restart_, given_up_, ended_by_, corrupt_});
}

JobRecord JobCore::record() const {
  std::map<Slot, int> leaving;
  std::vector<Slot> done;
  std::map<Slot, std::vector<Slot>> accused;
  for (const auto& [slot, whose] : accused_) accused[slot] = {whose.by.begin(), whose.by.end()};
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (at(slot).leaving >= 0) leaving[slot] = at(slot).leaving;
    if (at(slot).life == Life::done && are_tasks()) done.push_back(slot);
  }
  return {.round = round_,
          .live = live_,
          .wished_size = wished_size_,
          .restarts_used = policy_.used(),
          .restarts_left = policy_.left(now_),
          .used_for_sigterm = policy_.used_for_sigterm(),
          .time_left = job_deadline_ == kNever
                           ? Duration::zero()
                           : std::max(Duration::zero(), job_deadline_ - paused_at_.value_or(now_)),
          .roster = roster_,
          .leaving = std::move(leaving),
          .members = members_,
          .done = std::move(done),
          .accused = std::move(accused)};
}

bool JobCore::holds(const JobRecord& record, const std::vector<Found>& found) {
  return std::ranges::any_of(found, [&](const Found& process) {
    return !process.done && (process.in_round > 0 || process.round == record.live) &&
           std::ranges::find(record.roster, process.slot) != record.roster.end();
  });
}

bool JobCore::is_up(const Process& process) {
  return process.life == Life::starting || process.life == Life::running;
}

bool JobCore::any_alive() const {
  return std::ranges::any_of(processes_, [](const Process& process) {
    return is_up(process) || process.life == Life::stopping;
  });
}

bool JobCore::any_member_done() const {
  if (count(Life::done) == 0) return false;
  return std::ranges::any_of(roster_, [&](Slot slot) { return at(slot).life == Life::done; });
}

// For the round that is being formed.
bool JobCore::any_member_waits() const {
  if (ready_ == 0) return false;
  return std::ranges::any_of(roster_, [&](Slot slot) { return at(slot).ready; });
}

bool JobCore::any_linked() const {
  return std::ranges::any_of(roster_, [&](Slot slot) { return at(slot).linked; });
}

bool JobCore::all_work_is_done() const {
  if (count(Life::done) + static_cast<int>(config_.servers.size()) < size()) return false;
  return std::ranges::all_of(roster_, [&](Slot slot) {
    return at(slot).life == Life::done || config_.servers.contains(at(slot).rank);
  });
}

bool JobCore::all_are_there() const {
  const bool tasks = are_tasks();
  if (count(Life::running) + (tasks ? count(Life::done) : 0) < size()) return false;
  return std::ranges::all_of(roster_, [&](Slot slot) {
    return at(slot).life == Life::running || (tasks && at(slot).life == Life::done);
  });
}

bool JobCore::holds_back_on(int node) const {
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (node_of(slot) == node && held_back(at(slot))) return true;
  }
  return false;
}

std::optional<TimePoint> JobCore::starts_at(Slot slot) const {
  const Process& process = at(slot);
  if (process.life != Life::waiting || process.start_at <= now_) return std::nullopt;
  return process.start_at;
}

std::string JobCore::life_of(Slot slot) const {
  const Process& process = at(slot);
  switch (process.life) {
    case Life::absent:
      return "absent";
    case Life::waiting:
      if (!reachable(slot)) return "waiting for its host";
      if (!held_back(process)) return "to be started";
      return target_size_ > size() ? "waiting for a restart" : "not started yet";
    case Life::starting:
      return "starting";
    case Life::running:
      if (process.ready) return process.rank >= 0 ? "waiting for its round" : "waiting for a place";
      return "running";
    case Life::stopping:
      return "being stopped";
    case Life::done:
      return "done";
    case Life::stuck:
      return "does not end";
  }
  return "";
}

std::string JobCore::waits_for() const {
  std::string text;
  if (state_ != JobState::forming) return text;
  if (out_of_reach()) return "the hosts of round " + std::to_string(live_) + ", all of them";
  for (const Slot slot : roster_) {
    const Process& process = at(slot);
    if (process.ready || process.life == Life::done) continue;
    if (are_tasks() && process.life == Life::running) continue;
    std::string how = "to leave its round";
    if (is_going(process)) how = "to end";
    if (process.life == Life::waiting) how = "to be started again";
    if (process.life == Life::waiting && !reachable(slot)) how = "to have its host back";
    if (process.life == Life::starting) how = "to start";
    if (process.life == Life::running && process.in_round == 0) how = "to ask for its round";
    if (!text.empty()) text += ", ";
    text += "rank " + std::to_string(process.rank) + " " + how;
  }
  return text;
}

}  // namespace dlaunch
