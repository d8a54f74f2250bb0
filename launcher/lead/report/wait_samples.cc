#include "launcher/lead/report/wait_samples.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace dlaunch {
namespace {

using SumsOfRanks = std::map<int, WaitSums>;

struct Totals {
  Duration waiting{}, caused{};
};
std::map<int, Totals> totals_of(const SumsOfRanks& ranks) {
  std::map<int, Totals> totals;
  for (const auto& [rank, sums] : ranks) {
    Totals& own = totals[rank];
    for (const auto& [key, time] : sums) {
      own.waiting += time;
      if (key.first >= 0) totals[key.first].caused += time;
    }
  }
  return totals;
}

// What a sample's waits are due to.
struct Reasons {
  std::map<WaitCause, Duration> waiting, caused;
  std::map<int, Duration> culprits;  // -1: not known
};
std::map<int, Reasons> reasons_of(const SumsOfRanks& now, SumsOfRanks& told) {
  std::map<int, Reasons> reasons;
  for (const auto& [rank, sums] : now) {
    for (const auto& [key, time] : sums) {
      const Duration since = time - told[rank][key];
      if (since <= Duration::zero()) continue;
      const auto& [culprit, cause] = key;
      reasons[rank].waiting[cause] += since;
      reasons[rank].culprits[culprit] += since;
      if (culprit >= 0) reasons[culprit].caused[cause] += since;
    }
  }
  return reasons;
}

// The key with the most time; there is one.
template <class Key>
Key most_of(const std::map<Key, Duration>& parts) {
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  return std::ranges::max_element(parts, less)->first;
}

void add_reasons(nlohmann::ordered_json& row, const Reasons& why) {
  const auto word = [](const auto& causes) {
    return std::string(word_of(kWaitCauseWords, most_of(causes)));
  };
  if (!why.waiting.empty()) row["waiting_cause"] = word(why.waiting);
  if (!why.caused.empty()) row["caused_cause"] = word(why.caused);
  const int culprit = why.culprits.empty() ? -1 : most_of(why.culprits);
  if (culprit >= 0) row["waited_for"] = culprit;
}

}  // namespace

TimePoint WaitSamples::due() const {
  return last_ + std::max(spans_interval(static_cast<int>(told_.size())), (last_ - begun_) / 500);
}

std::string WaitSamples::sample(TimePoint now, const Goodput& goodput) {
  SumsOfRanks sums;
  for (const Goodput::Rank& rank : goodput.ranks) {
    WaitSums& own = sums[rank.rank];
    for (const Goodput::Waits& wait : rank.waits) own[{wait.culprit, wait.cause}] += wait.time;
  }
  auto told = totals_of(told_);
  auto reasons = reasons_of(sums, told_);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  // A failure turns waits into lost work: the sum may shrink.
  const auto since = [](Duration sum, Duration before) {
    return to_seconds(std::max(sum - before, Duration::zero()));
  };
  for (const auto& [rank, totals] : totals_of(sums)) {
    nlohmann::ordered_json row = {{"rank", rank},
                                  {"waiting", since(totals.waiting, told[rank].waiting)},
                                  {"caused", since(totals.caused, told[rank].caused)}};
    add_reasons(row, reasons[rank]);
    rows.push_back(std::move(row));
  }
  const nlohmann::ordered_json line = {{"monotonic", to_seconds(now.time_since_epoch())},
                                       {"seconds", to_seconds(now - last_)},
                                       {"ranks", std::move(rows)}};
  told_ = std::move(sums);
  last_ = now;
  return line.dump() + "\n";
}

}  // namespace dlaunch
