#include "launcher/lead/monitor/hang_evidence.h"

#include <algorithm>

#include <fmt/format.h>

#include "elastic/hang_finder.h"

namespace dlaunch {
namespace {

bool has_all(const RankSet& all, const RankSet& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

// The ranks that lack a collective in which others wait, by the recorder.
HangCulprits by_recorder(const HangEvidence& evidence, const RankSet& hung) {
  Progress progress;
  for (const auto& [rank, positions] : evidence.recorded) {
    for (const NodePosition& at : positions) {
      progress[rank].groups[at.group] = {.seq = at.seq, .inside = at.inside, .what = at.what};
    }
  }
  for (const Hang& hang : find_hangs(TimePoint(), progress)) {
    if (hang.key.kind == Hang::Key::missing && has_all(hung, hang.key.culprits)) {
      return {.ranks = hang.key.culprits, .note = "; " + hang.sentence};
    }
  }
  return {};
}

// Those that lack a collective of NCCL, or call another one.
HangCulprits by_nccl(const HangEvidence& evidence, const RankSet& hung) {
  const auto verdict = nccl_verdict(evidence.nccl);
  if (!verdict || !has_all(hung, verdict->ranks)) return {};
  return {.ranks = verdict->ranks, .note = "; " + verdict->sentence};
}

HangCulprits by_stacks(const RankStacks& stacks, const RankSet& hung) {
  const auto groups = group_stacks(stacks);
  const RankSet suspects = find_suspects(groups, {}, static_cast<int>(stacks.size())).ranks;
  if (suspects.empty() || !has_all(hung, suspects)) return {};
  std::vector<std::string> places;
  for (const StackGroup& group : groups) {
    if (suspects.contains(*group.ranks.begin())) places.push_back(in_words(group));
  }
  return {.ranks = suspects, .note = fmt::format("; {}", fmt::join(places, "; "))};
}

}  // namespace

HangCulprits culprits_of(const HangEvidence& evidence, const RankSet& hung) {
  auto culprits = by_recorder(evidence, hung);
  if (culprits.ranks.empty()) culprits = by_nccl(evidence, hung);
  if (culprits.ranks.empty()) culprits = by_stacks(evidence.stacks, hung);
  if (culprits.ranks.empty()) culprits.ranks = hung;
  return culprits;
}

std::optional<std::map<int, std::string>> waits_of(const HangEvidence& evidence,
                                                   const RankSet& busy) {
  std::map<int, std::string> places;
  for (const StackGroup& group : group_stacks(evidence.stacks)) {
    for (const int rank : group.ranks) {
      if (group.waits && busy.contains(rank)) places[rank] = group.place;
    }
  }
  for (const auto& [rank, positions] : evidence.recorded) {
    for (const NodePosition& at : positions) {
      if (!at.inside || !busy.contains(rank)) continue;
      places[rank] = fmt::format("in collective #{} of group {}", at.seq, at.group);
    }
  }
  if (places.empty() || places.size() != busy.size()) return std::nullopt;
  return places;
}

}  // namespace dlaunch
