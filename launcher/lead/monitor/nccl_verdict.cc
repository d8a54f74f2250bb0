#include "launcher/lead/monitor/nccl_verdict.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

#include "base/text.h"
#include "elastic/hang_finder.h"

namespace dlaunch {
namespace {

const char* have(const RankSet& ranks) { return ranks.size() == 1 ? "has" : "have"; }

// The members of one communicator.
class NcclGroup {
 public:
  // A process with several GPUs has several ranks there: the last of them counts.
  void add(int rank, const NcclProgress& progress) {
    const auto [at, is_new] = members_.emplace(rank, &progress);
    if (!is_new && progress.enqueued < at->second->enqueued) at->second = &progress;
  }

  RankSet behind() const {
    return those(
        [this](const NcclProgress& its) { return its.enqueued == least() && least() < most(); });
  }
  RankSet ahead() const {
    return those([this](const NcclProgress& its) { return its.enqueued > least(); });
  }
  // The GPU has not begun the first collective in which another one is.
  RankSet late_on_gpu() const {
    const std::uint64_t open = first_open();
    return those([open](const NcclProgress& its) { return its.kernels && its.begun < open; });
  }
  std::optional<NcclVerdict> mismatch() const;
  NcclVerdict missing(const RankSet& culprits) const;
  NcclVerdict late(const RankSet& culprits) const;
  std::string wait_of(int rank) const;

 private:
  template <class Which>
  RankSet those(Which which) const {
    RankSet ranks;
    for (const auto& [rank, progress] : members_) {
      if (which(*progress)) ranks.insert(rank);
    }
    return ranks;
  }
  std::uint64_t least() const;
  std::uint64_t most() const;
  std::uint64_t first_open() const;
  std::string name_of(std::uint64_t number) const;
  std::string on() const { return " on " + escaped(in_words(*members_.begin()->second)); }

  std::map<int, const NcclProgress*> members_;
};

// Null: it is no longer, or not yet, in the record.
const NcclCall* nccl_call(const NcclProgress& progress, std::uint64_t number) {
  const std::uint64_t first = progress.enqueued - progress.last.size() + 1;
  if (number < first || number > progress.enqueued) return nullptr;
  return &progress.last[number - first];
}

std::uint64_t NcclGroup::least() const {
  std::uint64_t least = UINT64_MAX;
  for (const auto& [rank, progress] : members_) least = std::min(least, progress->enqueued);
  return least;
}

std::uint64_t NcclGroup::most() const {
  std::uint64_t most = 0;
  for (const auto& [rank, progress] : members_) most = std::max(most, progress->enqueued);
  return most;
}

// 0: none is in a collective, as far as is known.
std::uint64_t NcclGroup::first_open() const {
  std::uint64_t first = 0;
  for (const auto& [rank, progress] : members_) {
    if (progress->open > 0 && (first == 0 || progress->open < first)) first = progress->open;
  }
  return first;
}

// "#3, all_reduce (count 4, float),"
std::string NcclGroup::name_of(std::uint64_t number) const {
  for (const auto& [rank, progress] : members_) {
    if (const NcclCall* const call = nccl_call(*progress, number)) {
      return fmt::format("collective #{}, {},", number, in_words(*call));
    }
  }
  return fmt::format("collective #{}", number);
}

// The first collective that is not the same on all members; the fewest differ from the others.
std::optional<NcclVerdict> NcclGroup::mismatch() const {
  const std::uint64_t last = least();
  for (std::uint64_t number = last - std::min<std::uint64_t>(last, kNcclCalls) + 1; number <= last;
       ++number) {
    std::map<std::string, RankSet> calls;
    for (const auto& [rank, progress] : members_) {
      if (const NcclCall* const call = nccl_call(*progress, number)) {
        calls[in_words(*call)].insert(rank);
      }
    }
    if (calls.size() < 2) continue;
    const auto fewest = std::min_element(calls.begin(), calls.end(), [](auto& a, auto& b) {
      return a.second.size() < b.second.size();
    });
    const auto alike = std::count_if(calls.begin(), calls.end(), [&](auto& call) {
      return call.second.size() == fewest->second.size();
    });
    NcclVerdict verdict{.ranks = fewest->second, .sentence = {}};
    std::vector<std::string> told;
    for (const auto& [call, ranks] : calls) {
      if (alike > 1) verdict.ranks.insert(ranks.begin(), ranks.end());
      told.push_back(fmt::format("{} {} called {}", in_words(ranks), have(ranks), call));
    }
    verdict.sentence =
        fmt::format("collective #{}{} is not the same: {}", number, on(), fmt::join(told, ", "));
    return verdict;
  }
  return std::nullopt;
}

NcclVerdict NcclGroup::missing(const RankSet& culprits) const {
  const RankSet others = ahead();
  return {culprits,
          fmt::format("{} {} not enqueued {}{}, where {} {} waiting", in_words(culprits),
                      have(culprits), name_of(least() + 1), on(), in_words(others), is(others))};
}

NcclVerdict NcclGroup::late(const RankSet& culprits) const {
  const std::uint64_t open = first_open();
  const RankSet others = those([open](const NcclProgress& its) { return its.open == open; });
  return {culprits,
          fmt::format("{} {} enqueued {}{}, but earlier work still holds the GPU; {} {} waiting",
                      in_words(culprits), have(culprits), name_of(open), on(), in_words(others),
                      is(others))};
}

std::string NcclGroup::wait_of(int rank) const {
  const auto member = members_.find(rank);
  if (member == members_.end()) return "";
  const NcclProgress& its = *member->second;
  if (its.open > 0) return fmt::format("in collective #{}{}", its.open, on());
  if (its.enqueued <= least()) return "";
  return fmt::format("has enqueued collective #{}{}", least() + 1, on());
}

std::map<std::uint64_t, NcclGroup> groups_of(const NcclRecords& records) {
  std::map<std::uint64_t, NcclGroup> groups;
  for (const auto& [rank, all] : records) {
    for (const NcclProgress& progress : all) groups[progress.comm].add(rank, progress);
  }
  return groups;
}

RankSet without(RankSet ranks, const RankSet& others) {
  for (const int rank : others) ranks.erase(rank);
  return ranks;
}

}  // namespace

std::optional<NcclVerdict> nccl_verdict(const NcclRecords& records) {
  const auto groups = groups_of(records);
  RankSet ahead, behind;
  for (const auto& [id, group] : groups) {
    if (auto verdict = group.mismatch()) return verdict;
    ahead.merge(group.ahead());
    behind.merge(group.behind());
  }
  for (const auto& [id, group] : groups) {
    const RankSet culprits = without(group.behind(), ahead);
    if (!culprits.empty()) return group.missing(culprits);
  }
  if (!behind.empty()) {
    return NcclVerdict{
        behind, fmt::format("{} wait for each other on different NCCL communicators: all ranks "
                            "must make these calls in the same order",
                            in_words(behind))};
  }
  for (const auto& [id, group] : groups) {
    const RankSet culprits = group.late_on_gpu();
    if (!culprits.empty()) return group.late(culprits);
  }
  return std::nullopt;
}

std::string nccl_wait(const NcclRecords& records, int rank) {
  for (const auto& [id, group] : groups_of(records)) {
    if (auto wait = group.wait_of(rank); !wait.empty()) return wait;
  }
  return "";
}

}  // namespace dlaunch
