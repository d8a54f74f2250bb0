#include "ring/sites/state_replay.h"

#include <span>

#include <fmt/format.h>

namespace dlaunch {

Result<void> StateReplay::snapshot(const JournalSnapshot& snapshot) {
  auto head = state_head(snapshot.state);
  if (!head) return head.error();
  tensor_.assign(head->elements, 0.0F);
  const OuterRules rules{.fragments = head->fragments,
                         .learning_rate = head->learning_rate,
                         .momentum = head->momentum,
                         .nesterov = head->nesterov != 0};
  state_ = std::make_unique<OuterState>(rules, std::vector<std::span<float>>{tensor_});
  codec_ = head->codec;
  common_ = head->common;
  return take_state(*state_, snapshot.state, common_);
}

Result<std::optional<std::uint64_t>> StateReplay::merge(
    const Merge& merge, const std::vector<std::string_view>& payloads,
    const std::vector<std::string>& names) {
  if (!state_) return std::optional<std::uint64_t>();
  OuterCounts& counts = state_->counts();
  if (merge.founding) {
    counts.epoch = merge.id.epoch;
    return hash();
  }
  if (merge.id.number != counts.merges + 1 || payloads.size() != merge.contributions.size()) {
    return Error{.code = Errc::protocol,
                 .what = fmt::format("merge {} does not follow the state after merge {}",
                                     merge.id.number, counts.merges)};
  }
  std::vector<std::string> who;
  for (const Contribution& one : merge.contributions) {
    const auto site = static_cast<std::size_t>(one.member.site);
    who.push_back(site < names.size() ? names[site] : std::to_string(site));
  }
  auto head = average_payloads(payloads, who, codec_, *state_, common_);
  if (!head) return head.error();
  apply_merge(*state_, merge.id, *head);
  return hash();
}

std::optional<std::uint64_t> StateReplay::hash() const {
  if (!state_) return std::nullopt;
  return hash_of_state(*state_);
}

}  // namespace dlaunch
