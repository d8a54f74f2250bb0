// JobCore: a new leader goes on with a lost leader's job.
#include <signal.h>

#include <algorithm>

#include "elastic/job_core.h"

namespace dlaunch {

// A rank whose present process was not in that round.
int JobCore::replaced_since(int round) const {
  const auto is = [&](Slot slot) { return at(slot).in_round != round; };
  const auto found = std::ranges::find_if(roster_, is);
  return found == roster_.end() ? size() - 1 : static_cast<int>(found - roster_.begin());
}

// A process that is absent was lost with the leader, or since.
void JobCore::on(const Resume& event) {
  if (config_.timeout > Duration::zero()) {
    job_deadline_ = deadline_after(now_, std::min(config_.timeout, event.was.time_left));
  }
  state_ = JobState::forming;
  round_ = event.was.round;
  live_ = event.was.live;
  roster_ = event.was.roster;
  members_ = event.was.members;
  for (const Slot slot : members_) {
    if (!reachable(slot)) cut_off_.insert(slot);
  }
  target_size_ = size();
  wished_size_ = std::clamp(event.was.wished_size, 1, config_.max_size);
  for (int rank = 0; rank < size(); ++rank) {
    Process& process = at(roster_[static_cast<std::size_t>(rank)]);
    process.rank = rank;
    process.wanted = true;
  }
  for (const Found& found : event.found) {
    Process& process = at(found.slot);
    process.wanted = true;
    set_life(process, found.done ? Life::done : Life::running);
    process.linked = found.linked && !found.done;
    elastic_ |= found.linked;
    set_ready(process, found.ready && !found.done);
    process.in_round = found.done ? 0 : found.in_round;
    process.round = found.round;
    process.version = found.version;
    process.join_by = deadline_after(now_, config_.join_timeout);
    version_ = std::max(version_, found.version);
    if (process.rank < 0) go_on_leaving(found, event.was.leaving);
  }
  for (const Slot slot : event.was.done) {
    Process& process = at(slot);
    if (are_tasks() && process.rank >= 0 && process.life == Life::absent)
      set_life(process, Life::done);
  }
  commits_ = version_;
  live_since_ = now_;
  for (const auto& [slot, by] : event.was.accused) {
    accused_[slot] = {{by.begin(), by.end()}, deadline_after(now_, kCorruptEnds)};
  }
  policy_.go_on(now_, event.was.restarts_used, event.was.restarts_left, commits_);
  if (all_work_is_done()) return;
  // The last announcement may not have reached all. If a round was being formed, a member was lost,
  // and the others may not know it.
  earlier_loss_ = event.was.round != event.was.live;
  form(!earlier_loss_ ? -1 : replaced_since(event.was.live));
  std::map<int, std::vector<Slot>> lost;  // by node
  for (const Slot slot : roster_) {
    if (at(slot).life == Life::absent) lost[node_of(slot)].push_back(slot);
  }
  for (const auto& [node, gone] : lost) {
    if (lost_nodes_.contains(node) && state_ == JobState::forming) lose_members(node, gone);
    // All losses with one agent are one failure.
    for (const Slot slot : gone) {
      if (!reachable(slot) || state_ != JobState::forming) continue;
      const bool judged = slot != gone.front() && why_no_restart_.empty();
      lose(slot, judged ? std::nullopt : std::optional(failure_of(slot, FailureKind::lost)));
    }
  }
  if (state_ == JobState::forming) on(Resize{wished_size_});
}

// A member of an earlier round that has lost its rank: that decision stands.
void JobCore::go_on_leaving(const Found& found, const std::map<Slot, int>& leaving) {
  Process& process = at(found.slot);
  if (const auto rank = leaving.find(found.slot); rank != leaving.end()) {
    process.wanted = false;
    process.leaving = rank->second;
  } else if (found.in_round > 0) {
    stop(found.slot, SIGKILL);
  }
}

}  // namespace dlaunch
