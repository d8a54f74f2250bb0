#include "elastic/hang_finder.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/ring_names.h"

namespace dlaunch {
namespace {

bool has_sign(const RankProgress& rank) { return rank.beat || rank.active; }

// "all_reduce #17", "barrier #3 of group 2"
std::string call_in_words(std::uint64_t group, const RankProgress::Position& at) {
  const auto name =
      at.what < std::size(kCollectiveNames) ? kCollectiveNames[at.what] : "collective";
  return fmt::format("{} #{}{}", name, at.seq,
                     group == 0 ? "" : fmt::format(" of group {}", group));
}

// One look at all ranks.
class Look {
 public:
  Look(TimePoint now, const Progress& progress) : now_(now), ranks_(progress) {}

  std::optional<Hang> in_group(std::uint64_t group) const;
  std::optional<Hang> idle() const;
  std::optional<Hang> without_heartbeat() const;
  std::optional<Hang> quiet() const;

 private:
  RankSet left_behind() const;
  bool has_entered(int rank) const;
  TimePoint moved_at(int rank) const;
  RankSet missing(std::uint64_t group, std::uint64_t seq) const;
  RankSet circle(const RankSet& from) const;
  bool waits(int rank) const;
  Duration still(const RankSet& ranks) const;
  std::string note_on_state(const RankSet& ranks) const;

  const TimePoint now_;
  const Progress& ranks_;
};

std::optional<Hang> Look::in_group(std::uint64_t group) const {
  Hang hang;
  hang.key.group = group;
  hang.key.seq = UINT64_MAX;  // the earliest that some member is in
  RankSet inside;
  std::string name;
  for (const auto& [number, rank] : ranks_) {
    const auto it = rank.groups.find(group);
    if (it == rank.groups.end() || !it->second.inside || it->second.seq > hang.key.seq) continue;
    if (it->second.seq < hang.key.seq) inside.clear();
    hang.key.seq = it->second.seq;
    name = call_in_words(group, it->second);
    inside.insert(number);
  }
  if (inside.empty()) return std::nullopt;
  hang.waiting = inside;
  const RankSet away = missing(group, hang.key.seq);
  RankSet& culprits = hang.key.culprits;
  if (away.empty()) {
    hang.key.kind = Hang::Key::stuck;
    culprits = inside;
    hang.waited = still(inside);
    hang.sentence = fmt::format("all have entered {}, but {} {} not come out of it{}", name,
                                in_words(inside), has(inside), note_on_state(inside));
    return hang;
  }
  for (const int rank : away) {
    if (!waits(rank)) culprits.insert(rank);
  }
  if (!culprits.empty()) {
    hang.key.kind = Hang::Key::missing;
    hang.witness =
        *std::ranges::max_element(inside, [&](int a, int b) { return still({a}) < still({b}); });
    hang.waited = std::min(still({hang.witness}), still(culprits));
    hang.sentence =
        fmt::format("{} {} not entered {}, where {} {} waiting{}", in_words(culprits),
                    has(culprits), name, in_words(inside), is(inside), note_on_state(culprits));
    return hang;
  }
  hang.key = {.kind = Hang::Key::circle, .group = 0, .seq = 0, .culprits = circle(away)};
  if (culprits.empty()) return std::nullopt;
  hang.waiting = culprits;
  hang.waited = still(culprits);
  hang.sentence = fmt::format(
      "{} wait for each other in collectives of different groups, one of "
      "them {}: these must be called in the same order everywhere",
      in_words(culprits), name);
  return hang;
}

std::optional<Hang> Look::idle() const {
  Hang hang;
  hang.key.kind = Hang::Key::idle;
  bool any_entered = false, any_beats = false, any_watched = false, all_have_signs = true;
  for (const auto& [number, rank] : ranks_) {
    if (waits(number)) return std::nullopt;
    hang.key.culprits.insert(number);
    any_entered = any_entered || has_entered(number);
    any_beats = any_beats || rank.beat;
    any_watched = any_watched || rank.active;
    all_have_signs = all_have_signs && has_sign(rank);
  }
  if (ranks_.empty() || (!any_entered && !all_have_signs)) return std::nullopt;
  hang.waited = still(hang.key.culprits);
  std::vector<std::string> none;
  if (any_beats) none.emplace_back("sent a heartbeat");
  if (any_entered) none.emplace_back("entered or left a collective");
  if (any_watched) none.emplace_back("written output or used CPU time");
  hang.sentence =
      fmt::format("no rank has {}{}", fmt::join(none, ", or "), note_on_state(hang.key.culprits));
  return hang;
}

// Those that have not moved while another rank has moved on.
RankSet Look::left_behind() const {
  TimePoint last = TimePoint::min();
  for (const auto& [number, rank] : ranks_) last = std::max(last, moved_at(number));
  RankSet behind;
  for (const auto& [number, rank] : ranks_) {
    if (last - moved_at(number) > now_ - last) behind.insert(number);
  }
  return behind;
}

std::optional<Hang> Look::without_heartbeat() const {
  Hang hang;
  hang.key.kind = Hang::Key::no_heartbeat;
  RankSet& culprits = hang.key.culprits;
  culprits = left_behind();
  std::erase_if(culprits, [&](int rank) { return !ranks_.at(rank).beat || waits(rank); });
  if (culprits.empty()) return std::nullopt;
  hang.waited = still(culprits);
  hang.sentence = fmt::format("{} {} sent no heartbeat{}", in_words(culprits), has(culprits),
                              note_on_state(culprits));
  return hang;
}

std::optional<Hang> Look::quiet() const {
  Hang hang;
  hang.key.kind = Hang::Key::quiet;
  for (const auto& [number, rank] : ranks_) {
    if (rank.beat || has_entered(number) || !rank.active) return std::nullopt;
    hang.busy.insert(number);
  }
  hang.key.culprits = left_behind();
  if (hang.key.culprits.empty()) return std::nullopt;
  for (const int rank : hang.key.culprits) hang.busy.erase(rank);
  hang.waited = still(hang.key.culprits);
  hang.sentence =
      fmt::format("{} {} neither written output nor used CPU time{}", in_words(hang.key.culprits),
                  has(hang.key.culprits), note_on_state(hang.key.culprits));
  return hang;
}

// The members of a group that have not entered this collective of it.
RankSet Look::missing(std::uint64_t group, std::uint64_t seq) const {
  RankSet ranks;
  for (const auto& [number, rank] : ranks_) {
    const auto it = rank.groups.find(group);
    if (it != rank.groups.end() && it->second.seq < seq) ranks.insert(number);
  }
  return ranks;
}

// These ranks and all that they wait for, directly or not, if each of them waits for a missing
// rank; else none.
RankSet Look::circle(const RankSet& from) const {
  RankSet reached, open = from;
  while (!open.empty()) {
    const int number = *open.begin();
    open.erase(open.begin());
    if (!reached.insert(number).second) continue;
    RankSet awaited;
    for (const auto& [group, at] : ranks_.at(number).groups) {
      if (at.inside) awaited.merge(missing(group, at.seq));
    }
    if (awaited.empty()) return {};
    open.merge(awaited);
  }
  return reached;
}

bool Look::waits(int rank) const {
  const auto& groups = ranks_.at(rank).groups;
  return std::ranges::any_of(groups, [](const auto& at) { return at.second.inside; });
}

bool Look::has_entered(int rank) const {
  const auto& groups = ranks_.at(rank).groups;
  return std::ranges::any_of(groups, [](const auto& at) { return at.second.seq > 0; });
}

// A rank that has entered no collective moves with its other signs alone, if it has some.
TimePoint Look::moved_at(int number) const {
  const RankProgress& rank = ranks_.at(number);
  TimePoint moved =
      std::max(rank.beat.value_or(TimePoint::min()), rank.active.value_or(TimePoint::min()));
  if (has_sign(rank) && !has_entered(number)) return moved;
  for (const auto& [group, at] : rank.groups) moved = std::max(moved, at.still_since);
  return moved;
}

// How long none of them has moved.
Duration Look::still(const RankSet& ranks) const {
  Duration shortest = Duration::max();
  for (const int rank : ranks) shortest = std::min(shortest, now_ - moved_at(rank));
  return shortest;
}

std::string Look::note_on_state(const RankSet& ranks) const {
  RankSet blocked;
  for (const int rank : ranks_in(ranks_, ProcessState::uninterruptible)) {
    if (ranks.contains(rank)) blocked.insert(rank);
  }
  if (blocked.empty()) return {};
  return fmt::format(" ({} {} in an uninterruptible sleep, D: a disk or network storage)",
                     in_words(blocked), is(blocked));
}

}  // namespace

std::vector<Hang> find_hangs(TimePoint now, const Progress& progress) {
  std::set<std::uint64_t> groups;
  for (const auto& [number, rank] : progress) {
    for (const auto& [group, at] : rank.groups) groups.insert(group);
  }
  const Look look(now, progress);
  std::vector<Hang> hangs;
  for (const std::uint64_t group : groups) {
    if (auto hang = look.in_group(group)) hangs.push_back(std::move(*hang));
  }
  if (auto hang = look.idle()) hangs.push_back(std::move(*hang));
  if (auto hang = look.without_heartbeat()) hangs.push_back(std::move(*hang));
  if (auto hang = look.quiet()) hangs.push_back(std::move(*hang));
  return hangs;
}

RankSet waiting_for(const Progress& progress, int rank) {
  RankSet waiting;
  const auto late = progress.find(rank);
  if (late == progress.end()) return waiting;
  for (const auto& [group, at] : late->second.groups) {
    for (const auto& [number, other] : progress) {
      const auto it = other.groups.find(group);
      const bool inside = it != other.groups.end() && it->second.inside;
      if (inside && it->second.seq > at.seq) waiting.insert(number);
    }
  }
  return waiting;
}

RankSet ranks_in(const Progress& progress, ProcessState state) {
  RankSet ranks;
  for (const auto& [number, rank] : progress) {
    if (rank.state == state) ranks.insert(number);
  }
  return ranks;
}

}  // namespace dlaunch
