// JobCore: what follows from hosts that are lost, come back, or are to be left.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "elastic/job_core.h"

namespace dlaunch {

// What ran there is nobody's any more: it is fenced by the number of its round, and its agent ends
// it.
void JobCore::on(const NodeLost& event) {
  if (!lost_nodes_.emplace(event.node, now_).second) return;
  if (state_ == JobState::idle) to_come_.insert(event.node);
  std::vector<Slot> lost;
  for (Slot slot = 0; slot < slots(); ++slot) {
    if (node_of(slot) != event.node) continue;
    Process& process = at(slot);
    if (process.life == Life::done || process.life == Life::waiting) continue;
    const bool ran = is_up(process), stopping = process.life == Life::stopping;
    const bool in_live =
        !process.ready && (process.linked ? process.in_round : process.round) == live_;
    if (in_live && (ran || stopping) && is_member(slot)) cut_off_.insert(slot);
    process.life = process.wanted && stopping ? Life::waiting : Life::absent;
    process.linked = process.ready = false;
    process.in_round = 0;
    const int left = std::exchange(process.leaving, -1);
    if (left >= 0) act(Fence{round_, left});
    if (process.wanted && ran) lost.push_back(slot);
  }
  if (!lost.empty() && state_ != JobState::ending) lose_members(event.node, lost);
}

void JobCore::on(const NodeBack& event) {
  drained_.erase(event.node);
  if (to_come_.erase(event.node) > 0) {
    wished_size_ = std::min(wished_size_ + growth_on(event.node), config_.max_size);
  }
  if (lost_nodes_.erase(event.node) == 0) return;
  std::erase_if(cut_off_, [&](Slot slot) { return node_of(slot) == event.node; });
  if (wished_size_ <= size()) return;
  if (state_ == JobState::forming || state_ == JobState::active) on(Resize{wished_size_});
}

// The slots there that are neither members' nor spares' at the start.
int JobCore::growth_on(int node) const {
  int found = 0;
  for (Slot slot = config_.size + config_.spares; slot < slots(); ++slot) {
    found += node_of(slot) == node;
  }
  return found;
}

// Who has no rank there goes at once.
void JobCore::on(const NodeDrain& event) {
  if (!drained_.insert(event.node).second || state_ == JobState::ending) return;
  for (Slot slot = 0; slot < slots(); ++slot) {
    Process& process = at(slot);
    if (node_of(slot) != event.node || process.rank >= 0 || !process.wanted) continue;
    process.wanted = false;
    stop(slot, SIGTERM);
  }
  target_size_ = std::min(target_size_, size());
  shrink_on();
}

// All that was lost with a node is one failure.
void JobCore::lose_members(int node, const std::vector<Slot>& lost) {
  failed_node_ = node;
  lost_ = true;
  const auto refused = is_refused(policy_.failed(
      now_, {.round = round_, .node = node, .kind = FailureKind::lost, .version = commits_}));
  int lost_rank = -1;
  for (const Slot slot : lost) {
    Process& process = at(slot);
    const int rank = process.rank;
    if (rank >= 0 && lost_rank < 0) lost_rank = rank;
    if (rank < 0) {
      want(slot, -1, now_);
    } else if (!refused && hand_to_spare(rank)) {
      want(slot, -1, now_);
    } else if (refused ? may_shrink() : size() > config_.min_size && !any_member_done()) {
      leave_roster(rank);
      target_size_ = size();
    } else if (refused) {
      return end(JobEnding::worker_failed, SIGTERM);
    } else {
      want(slot, rank, now_);
    }
  }
  if (lost_rank >= 0) form(lost_rank);
}

}  // namespace dlaunch
