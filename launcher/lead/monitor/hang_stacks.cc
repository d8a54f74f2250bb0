#include "launcher/lead/monitor/hang_stacks.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace dlaunch {

HangCulprits culprits_by_stacks(const RankStacks& stacks, const RankSet& hung) {
  const auto groups = group_stacks(stacks);
  const RankSet suspects = find_suspects(groups, {}, static_cast<int>(stacks.size())).ranks;
  if (suspects.empty() ||
      !std::includes(hung.begin(), hung.end(), suspects.begin(), suspects.end())) {
    return {.ranks = hung, .note = ""};
  }
  std::vector<std::string> places;
  for (const StackGroup& group : groups) {
    if (suspects.contains(*group.ranks.begin())) places.push_back(in_words(group));
  }
  return {.ranks = suspects, .note = fmt::format("; {}", fmt::join(places, "; "))};
}

std::optional<std::map<int, std::string>> waits_of(const RankStacks& stacks, const RankSet& busy) {
  std::map<int, std::string> places;
  for (const StackGroup& group : group_stacks(stacks)) {
    for (const int rank : group.ranks) {
      if (group.waits && busy.contains(rank)) places[rank] = group.place;
    }
  }
  if (places.empty() || places.size() != busy.size()) return std::nullopt;
  return places;
}

}  // namespace dlaunch
