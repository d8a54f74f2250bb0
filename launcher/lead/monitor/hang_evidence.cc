#include "launcher/lead/monitor/hang_evidence.h"

#include <algorithm>
#include <cstdint>
#include <utility>

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

// RAS names some ranks of a communicator, and of the others it tells only the count. If all ranks
// of the job are in it, the others are known, too.
NcclRecords with_others(const HangEvidence& evidence, const RankSet& all) {
  struct Counts {
    NcclProgress others;
    RankSet named;
  };
  std::map<std::pair<std::uint64_t, std::string>, Counts> of_all;
  for (const auto& [rank, named] : evidence.ras) {
    for (const NcclProgress& its : named) {
      if (!its.others || static_cast<std::size_t>(its.ranks) != all.size()) continue;
      Counts& counts = of_all[{its.comm, its.function}];
      counts.others = its;
      counts.named.insert(rank);
    }
  }
  NcclRecords records = evidence.ras;
  for (auto& [id, counts] : of_all) {
    counts.others.enqueued = *counts.others.others;
    for (const int rank : all) {
      if (counts.named.contains(rank) || evidence.ras_silent.contains(rank)) continue;
      records[rank].push_back(counts.others);
    }
  }
  return records;
}

std::optional<NcclVerdict> by_ras(const HangEvidence& evidence, const RankSet& all) {
  const RankSet& silent = evidence.ras_silent;
  if (!silent.empty() && silent.size() < all.size() && has_all(all, silent)) {
    return NcclVerdict{silent, fmt::format("NCCL RAS: {} {} not answer the other ranks",
                                           in_words(silent), silent.size() == 1 ? "does" : "do")};
  }
  auto verdict = nccl_verdict(with_others(evidence, all));
  if (verdict) verdict->sentence = "NCCL RAS: " + verdict->sentence;
  return verdict;
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

std::optional<NcclVerdict> late_in_nccl(const HangEvidence& evidence, const RankSet& all) {
  for (const auto& verdict : {nccl_verdict(evidence.nccl), by_ras(evidence, all)}) {
    if (verdict && has_all(all, verdict->ranks)) return verdict;
  }
  return std::nullopt;
}

HangCulprits culprits_of(const HangEvidence& evidence, const RankSet& hung) {
  auto culprits = by_recorder(evidence, hung);
  if (!culprits.ranks.empty()) return culprits;
  if (const auto late = late_in_nccl(evidence, hung)) return {late->ranks, "; " + late->sentence};
  culprits = by_stacks(evidence.stacks, hung);
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
