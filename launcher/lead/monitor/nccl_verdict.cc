#include "launcher/lead/monitor/nccl_verdict.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "elastic/hang_finder.h"

namespace dlaunch {
namespace {

// The members of one communicator.
class NcclGroup {
 public:
  // A process with several GPUs has several ranks there: the last of them counts.
  void add(int rank, const NcclProgress& progress) {
    const auto [at, is_new] = members_.emplace(rank, &progress);
    if (!is_new && progress.enqueued < at->second->enqueued) at->second = &progress;
  }

  RankSet behind() const {
    const std::uint64_t low = least(), high = most();
    return those([=](const NcclProgress& its) { return its.enqueued == low && low < high; });
  }
  RankSet ahead() const {
    const std::uint64_t low = least();
    return those([=](const NcclProgress& its) { return its.enqueued > low; });
  }
  // The GPU has not begun the first collective in which another one is.
  RankSet late_on_gpu() const {
    const std::uint64_t open = first_open();
    return those([open](const NcclProgress& its) { return its.kernels && its.begun < open; });
  }
  std::optional<NcclVerdict> mismatch() const;
  NcclVerdict missing(const RankSet& culprits) const;
  NcclVerdict late(const RankSet& culprits) const;
  NcclVerdict replaced(const RankSet& culprits, const NcclGroup& by) const;

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
  std::vector<std::pair<NcclCall, RankSet>> calls_of(std::uint64_t number) const;
  std::string on() const { return " on " + escaped(in_words(*members_.begin()->second)); }

  std::map<int, const NcclProgress*> members_;
};

// Null: it is no longer, or not yet, in the record.
const NcclCall* nccl_call(const NcclProgress& progress, std::uint64_t number) {
  const std::uint64_t later = progress.enqueued - number;
  if (number > progress.enqueued || later >= progress.last.size()) return nullptr;
  return &progress.last[progress.last.size() - 1 - later];
}

std::uint64_t NcclGroup::least() const {
  std::uint64_t least = UINT64_MAX;
  for (const auto& [rank, progress] : members_) {
    least = std::min({least, progress->enqueued, progress->others.value_or(UINT64_MAX)});
  }
  return least;
}

std::uint64_t NcclGroup::most() const {
  std::uint64_t most = 0;
  for (const auto& [rank, progress] : members_) {
    most = std::max({most, progress->enqueued, progress->others.value_or(0)});
  }
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

// "collective #3, all_reduce (count 4, float),", "AllReduce #3"
std::string NcclGroup::name_of(std::uint64_t number) const {
  for (const auto& [rank, progress] : members_) {
    if (const NcclCall* const call = nccl_call(*progress, number)) {
      return fmt::format("collective #{}, {},", number, in_words(*call));
    }
  }
  const std::string& function = members_.begin()->second->function;
  return fmt::format("{} #{}", function.empty() ? "collective" : escaped(function), number);
}

// Each different call that is known of this collective, with its ranks; by the lowest rank.
std::vector<std::pair<NcclCall, RankSet>> NcclGroup::calls_of(std::uint64_t number) const {
  std::vector<std::pair<NcclCall, RankSet>> calls;
  for (const auto& [rank, progress] : members_) {
    const NcclCall* const call = nccl_call(*progress, number);
    if (call == nullptr) continue;
    auto known = std::ranges::find_if(
        calls, [call](const auto& other) { return are_same(other.first, *call); });
    if (known == calls.end()) known = calls.insert(calls.end(), {*call, {}});
    known->second.insert(rank);
  }
  return calls;
}

// The first collective that is not the same on all members; the fewest differ from the others.
std::optional<NcclVerdict> NcclGroup::mismatch() const {
  const std::uint64_t last = least();
  for (std::uint64_t later = std::min<std::uint64_t>(last, kNcclCalls); later-- > 0;) {
    const std::uint64_t number = last - later;
    const auto calls = calls_of(number);
    if (calls.size() < 2) continue;
    const auto fewest = std::ranges::min_element(
        calls, [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
    const auto alike = std::ranges::count_if(
        calls, [&](auto& call) { return call.second.size() == fewest->second.size(); });
    NcclVerdict verdict{.ranks = fewest->second, .sentence = {}};
    std::vector<std::string> told;
    for (const auto& [call, ranks] : calls) {
      if (alike > 1) verdict.ranks.insert(ranks.begin(), ranks.end());
      told.push_back(fmt::format("{} {} called {}", in_words(ranks), has(ranks), in_words(call)));
    }
    verdict.sentence =
        fmt::format("collective #{}{} is not the same: {}", number, on(), fmt::join(told, ", "));
    return verdict;
  }
  return std::nullopt;
}

NcclVerdict NcclGroup::missing(const RankSet& culprits) const {
  const RankSet others = ahead();
  const std::string waiting =
      others.empty() ? "other ranks are" : fmt::format("{} {}", in_words(others), is(others));
  return {culprits, fmt::format("{} {} not enqueued {}{}, where {} waiting", in_words(culprits),
                                has(culprits), name_of(least() + 1), on(), waiting)};
}

NcclVerdict NcclGroup::replaced(const RankSet& culprits, const NcclGroup& by) const {
  return {culprits, fmt::format("{} {} enqueued {} in the place of {}{}", in_words(culprits),
                                has(culprits), by.name_of(by.most()), name_of(least() + 1), on())};
}

NcclVerdict NcclGroup::late(const RankSet& culprits) const {
  const std::uint64_t open = first_open();
  const RankSet others = those([open](const NcclProgress& its) { return its.open == open; });
  return {culprits,
          fmt::format("{} {} enqueued {}{}, but earlier work still holds the GPU; {} {} waiting",
                      in_words(culprits), has(culprits), name_of(open), on(), in_words(others),
                      is(others))};
}

// By communicator, and by function where these are counted by themselves.
using NcclGroups = std::map<std::pair<std::uint64_t, std::string>, NcclGroup>;

NcclGroups groups_of(const NcclRecords& records) {
  NcclGroups groups;
  for (const auto& [rank, all] : records) {
    for (const NcclProgress& progress : all) {
      groups[{progress.comm, progress.function}].add(rank, progress);
    }
  }
  // Those that destroy a communicator need not have called the same on it.
  for (const auto& [rank, all] : records) {
    for (const NcclProgress& progress : all) {
      if (progress.destroyed) groups.erase({progress.comm, progress.function});
    }
  }
  return groups;
}

// The last operation of the rank is a message, which waits for its peer as far as is known.
bool is_in_message(const std::vector<NcclProgress>& all) {
  const auto last = std::ranges::max_element(
      all, [](const auto& a, const auto& b) { return a.last_operation < b.last_operation; });
  return last != all.end() && last->message && !last->destroyed;
}

RankSet without(RankSet ranks, const RankSet& others) {
  for (const int rank : others) ranks.erase(rank);
  return ranks;
}

// The group in which the fewest ranks are behind that are not excused.
std::optional<NcclVerdict> fewest_missing(const NcclGroups& groups, const RankSet& excused) {
  const NcclGroup* where = nullptr;
  RankSet fewest;
  for (const auto& [id, group] : groups) {
    RankSet culprits = without(group.behind(), excused);
    if (culprits.empty() || (where != nullptr && culprits.size() >= fewest.size())) continue;
    where = &group;
    fewest = std::move(culprits);
  }
  if (where == nullptr) return std::nullopt;
  return where->missing(fewest);
}

// Those that are behind in one function of a communicator and ahead in another one; most ranks are
// not.
std::optional<NcclVerdict> other_function(const NcclGroups& groups) {
  for (const auto& [id, group] : groups) {
    const RankSet culprits = group.behind(), others = group.ahead();
    if (culprits.empty() || (!others.empty() && culprits.size() > others.size())) continue;
    for (const auto& [other_id, other] : groups) {
      if (other_id.first == id.first && other.ahead() == culprits) {
        return group.replaced(culprits, other);
      }
    }
  }
  return std::nullopt;
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
  RankSet waiting = ahead;
  for (const auto& [rank, all] : records) {
    if (is_in_message(all)) waiting.insert(rank);
  }
  for (const RankSet& excused : {waiting, ahead}) {
    if (auto verdict = fewest_missing(groups, excused)) return verdict;
  }
  if (!behind.empty()) {
    if (auto verdict = other_function(groups)) return verdict;
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

}  // namespace dlaunch
