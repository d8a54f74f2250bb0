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

std::optional<Duration> age(TimePoint now, std::optional<TimePoint> sign, bool still) {
  if (!sign) return std::nullopt;
  return still ? now - *sign : Duration::zero();
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
    if (is_new && !worker.state) continue;
    Known& known = known_[worker.slot];
    if (!is_new) known = std::move(it->second);
    if (is_new || !same_places(known.last, worker)) known.since = now;
    const auto state = worker.state ? worker.state : known.last.state;
    known.last = worker;
    known.last.state = state;
    if (!is_news(now, known, is_new)) continue;
    known.told = now;
    known.told_state = *state;
    news.ranks.push_back(describe(now, known));
  }
  return news;
}

// Also decides whether to report where the worker stands.
bool RankNews::is_news(TimePoint now, Known& known, bool is_new) const {
  const Worker& worker = known.last;
  const bool stands_changed =
      stands_now(now, known, !worker.positions.empty(), known.since, known.told_still);
  const bool beat_changed = sign_changed(now, known, worker.beat, known.told_beat);
  const bool active_changed = sign_changed(now, known, worker.active, known.told_active);
  if (is_new || stands_changed || beat_changed || active_changed) return true;
  const ProcessState state = *worker.state;
  if (state == known.told_state) return false;
  if (is_held(state) || is_held(known.told_state)) return true;
  const bool blocked = (state == ProcessState::uninterruptible) !=
                       (known.told_state == ProcessState::uninterruptible);
  return known.told_still && blocked && now - *known.told >= still_after_;
}

// Sets `told` to whether it has not moved for long enough; true: this differs from the last report.
bool RankNews::stands_now(TimePoint now, const Known& known, bool present, TimePoint since,
                          bool& told) const {
  const bool stands = present && !known.last.left && now - since >= still_after_;
  const bool moved = told && (!stands || since > *known.told);
  return (std::exchange(told, stands) != stands) || moved;
}

bool RankNews::sign_changed(TimePoint now, const Known& known, std::optional<TimePoint> sign,
                            ToldSign& told) const {
  const bool there = sign.has_value();
  const bool still_changed = stands_now(now, known, there, sign.value_or(now), told.still);
  return (std::exchange(told.there, there) != there) || still_changed;
}

NodeRank RankNews::describe(TimePoint now, const Known& known) const {
  const Worker& worker = known.last;
  NodeRank rank{.rank = worker.rank,
                .round = worker.round,
                .pid = worker.pid,
                .state = *worker.state,
                .left = worker.left,
                .moves = !known.told_still,
                .positions = {},
                .beat = age(now, worker.beat, known.told_beat.still),
                .quiet = age(now, worker.active, known.told_active.still)};
  if (rank.moves) return rank;
  for (const FlightPosition& at : worker.positions) {
    const Duration age = std::max(Duration::zero(), now - at.moved);
    rank.positions.push_back(
        {at.group, at.seq, at.inside, at.what, std::min(age, now - known.since)});
  }
  return rank;
}

}  // namespace dlaunch
