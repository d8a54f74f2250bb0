// JobCore: the consequences of hosts that are lost, come back, or are to be left.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "elastic/job_core.h"

namespace dlaunch {

// Its processes have left the job: the number of their round fences them, and their agent ends
// them.
void JobCore::on(const NodeLost& event) {
  if (!lost_nodes_.emplace(event.node, now_).second) return;
  if (state_ == JobState::idle) to_come_.insert(event.node);
  std::vector<Slot> lost, to_come;
  int left = -1;  // the rank of one that was leaving
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (node_of(slot) != event.node) continue;
    Process& process = at(slot);
    if (process.life == Life::done) continue;
    if (process.life == Life::waiting) {
      to_come.push_back(slot);
      continue;
    }
    const bool ran = is_up(process), stopping = is_going(process);
    const bool in_live =
        !process.ready && (process.linked ? process.in_round : process.round) == live_;
    if (in_live && (ran || stopping) && is_member(slot)) cut_off_.insert(slot);
    set_life(process, process.wanted && stopping ? Life::waiting : Life::absent);
    process.linked = false;
    set_ready(process, false);
    process.in_round = 0;
    left = std::max(left, std::exchange(process.leaving, -1));
    if (process.wanted && ran) lost.push_back(slot);
    if (process.life == Life::waiting) to_come.push_back(slot);
  }
  if (state_ == JobState::idle || state_ == JobState::ending) return;
  if (left >= 0) lose_leaver(left);
  if (!lost.empty()) lose_members(event.node, lost);
  if (state_ != JobState::ending) go_without(to_come);
  lower_target();
}

// Members that were to start there: the incident that took them along is counted already.
void JobCore::go_without(const std::vector<Slot>& to_come) {
  int lost_rank = -1;
  for (const Slot slot : to_come) {
    const int rank = at(slot).rank;
    if (rank < 0 || !give_place(slot)) continue;
    if (lost_rank < 0) lost_rank = rank;
  }
  if (lost_rank >= 0) form(lost_rank);
}

// It is expected, or has not been in any round: it holds no state. Workers of a plain program go
// all together.
bool JobCore::is_newcomer(const Process& process) const {
  if (process.life == Life::waiting || is_going(process)) return true;
  return elastic_ && is_up(process) && process.in_round == 0;
}

// One that is being stopped gets no second signal.
void JobCore::dismiss(Slot slot) {
  at(slot).wanted = false;
  if (at(slot).life != Life::stopping) stop(slot, SIGTERM);
}

// Gives the place to a spare, on another node if there is one, or lets the job go on without it.
// False: it keeps its place, and the job must wait for it.
bool JobCore::give_place(Slot slot) {
  const int rank = at(slot).rank;
  if (hand_to_spare(rank, node_of(slot))) {
    at(slot).rank = -1;
    drained_.contains(node_of(slot)) ? dismiss(slot) : want(slot, -1, now_);
  } else if (size() > config_.min_size && !any_member_done() && !are_tasks()) {
    leave_roster(rank);
  } else {
    return false;
  }
  return true;
}

// The job does not wait for ranks that no node has room for, until a node is back.
void JobCore::lower_target() {
  const int joiners = static_cast<int>(without_rank().size()) - config_.spares;
  target_size_ = std::min(target_size_, size() + std::max(joiners, 0));
}

// A host that has come has room for the members of an absent one.
void JobCore::replace_absent() {
  if (state_ != JobState::forming || lost_nodes_.empty()) return;
  int lost_rank = -1;
  for (int rank = 0; rank < size(); ++rank) {
    const Slot slot = roster_[static_cast<std::size_t>(rank)];
    if (at(slot).life != Life::waiting || reachable(slot) || !hand_to_spare(rank)) continue;
    want(slot, -1, now_);
    if (lost_rank < 0) lost_rank = rank;
  }
  if (lost_rank < 0) return;
  lower_target();
  form(lost_rank);
}

void JobCore::on(const NodeBack& event) {
  const bool stayed = drained_.erase(event.node) > 0 && !lost_nodes_.contains(event.node);
  if (to_come_.erase(event.node) > 0) {
    wished_size_ = std::min(wished_size_ + growth_on(event.node), config_.max_size);
  }
  if (lost_nodes_.erase(event.node) == 0 && !stayed) return;
  std::erase_if(cut_off_, [&](Slot slot) { return node_of(slot) == event.node; });
  if (wished_size_ < size()) return;
  if (state_ == JobState::forming || state_ == JobState::active) on(Resize{wished_size_});
}

// The slots there that belong neither to members nor to spares at the start.
int JobCore::growth_on(int node) const {
  int found = 0;
  for (Slot slot = config_.size + config_.spares; slot < slots(); ++slot) {
    found += node_of(slot) == node;
  }
  return found;
}

// Processes without a rank there stop at once, and so do newcomers if others can take their places.
void JobCore::on(const NodeDrain& event) {
  if (!drained_.insert(event.node).second || state_ == JobState::ending) return;
  std::vector<Slot> to_come;
  for (Slot slot = 0; slot < slots(); ++slot) {
    const Process& process = at(slot);
    if (node_of(slot) != event.node || !process.wanted) continue;
    if (process.rank < 0) {
      dismiss(slot);
    } else if (is_newcomer(process)) {
      to_come.push_back(slot);
    }
  }
  if (state_ == JobState::forming) go_without(to_come);
  lower_target();
  shrink_on();
}

// All losses on one node are one failure.
void JobCore::lose_members(int node, const std::vector<Slot>& lost) {
  failed_node_ = node;
  keep_leavers();
  lost_ = true;
  const auto ranks = std::ranges::count_if(lost, [&](Slot slot) { return at(slot).rank >= 0; });
  const bool dispensable = may_shrink(static_cast<int>(ranks));
  const auto refused = is_refused(policy_.failed(now_, {.round = round_,
                                                        .node = node,
                                                        .kind = FailureKind::lost,
                                                        .version = commits_,
                                                        .dispensable = dispensable}));
  int lost_rank = -1;
  for (const Slot slot : lost) {
    Process& process = at(slot);
    const int rank = process.rank;
    if (rank >= 0 && lost_rank < 0) lost_rank = rank;
    if (rank < 0) {
      want(slot, -1, now_);
    } else if (refused && !may_shrink()) {
      return end(JobEnding::worker_failed, SIGTERM);
    } else if (refused) {
      leave_roster(rank);
    } else if (!give_place(slot)) {
      want(slot, rank, now_);
    }
  }
  if (lost_rank >= 0) form(lost_rank);
}

}  // namespace dlaunch
