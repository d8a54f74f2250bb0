#include "launcher/node/watch/rank_news.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

bool same_place(const FlightPosition& a, const FlightPosition& b) {
  return a.group == b.group && a.seq == b.seq && a.inside == b.inside;
}

bool same_places(const RankNews::Worker& a, const RankNews::Worker& b) {
  return std::equal(a.positions.begin(), a.positions.end(), b.positions.begin(), b.positions.end(),
                    same_place);
}

bool same_worker(const RankNews::Worker& a, const RankNews::Worker& b) {
  return a.rank == b.rank && a.round == b.round && a.pid == b.pid && a.left == b.left;
}

}  // namespace

NodeSeen RankNews::look(TimePoint now, const std::vector<Worker>& workers) {
  NodeSeen news;
  std::map<Slot, Known> before = std::exchange(known_, {});
  for (const Worker& worker : workers) {
    const auto it = before.find(worker.slot);
    const bool is_new = it == before.end() || !same_worker(it->second.last, worker);
    Known& known = known_[worker.slot];
    if (!is_new) known = std::move(it->second);
    if (is_new || !same_places(known.last, worker)) known.since = now;
    known.last = worker;
    if (!is_news(now, known, is_new)) continue;
    known.told = now;
    known.told_state = worker.state;
    news.ranks.push_back(describe(now, known));
  }
  return news;
}

// Also decides whether to report where the worker stands.
bool RankNews::is_news(TimePoint now, Known& known, bool is_new) const {
  const Worker& worker = known.last;
  const bool stands =
      !worker.positions.empty() && !worker.left && now - known.since >= still_after_;
  const bool moved = known.told_still && (!stands || known.since > *known.told);
  const bool stood_before = std::exchange(known.told_still, stands);
  if (is_new || moved || stands != stood_before) return true;
  if (worker.state == known.told_state) return false;
  if (is_held(worker.state) || is_held(known.told_state)) return true;
  const bool blocked = (worker.state == ProcessState::uninterruptible) !=
                       (known.told_state == ProcessState::uninterruptible);
  return stands && blocked && now - *known.told >= still_after_;
}

NodeRank RankNews::describe(TimePoint now, const Known& known) const {
  const Worker& worker = known.last;
  NodeRank rank{.rank = worker.rank,
                .round = worker.round,
                .pid = worker.pid,
                .state = worker.state,
                .left = worker.left,
                .moves = !known.told_still,
                .positions = {}};
  if (rank.moves) return rank;
  for (const FlightPosition& at : worker.positions) {
    const Duration age = std::max(Duration::zero(), now - at.moved);
    rank.positions.push_back(
        {at.group, at.seq, at.inside, at.what, std::min(age, now - known.since)});
  }
  return rank;
}

}  // namespace dlaunch
