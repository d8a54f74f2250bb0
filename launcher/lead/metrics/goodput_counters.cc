#include "launcher/lead/metrics/goodput_counters.h"

#include <algorithm>

namespace dlaunch {

GoodputCounters::Accounts GoodputCounters::accounts_of(const Goodput& goodput) {
  Accounts all;
  for (const auto& [account, time] : goodput.accounts()) {
    const bool has_culprits =
        account == "waiting" || account == "recovery" || account == "lost_work";
    if (!has_culprits) all[{account, {}, {}}] = time;
  }
  for (const Goodput::Rank& rank : goodput.ranks) {
    for (const auto& wait : rank.waits) all[{"waiting", wait.culprit, wait.cause}] += wait.time;
    for (const auto& due : rank.recovery) all[{"recovery", due.culprit, {}}] += due.time;
    for (const auto& due : rank.lost) all[{"lost_work", due.culprit, {}}] += due.time;
  }
  return all;
}

void GoodputCounters::name_culprits(const Goodput& now) {
  const bool all = now.ranks.size() <= kMostCulprits;
  for (const Goodput::Cost& cost : now.costs) {  // the largest first
    if (named_.size() >= kMostCulprits) return;
    if (all || now.share(cost.sum()) >= kLeastShare) named_.insert(cost.rank);
  }
}

void GoodputCounters::take(const Goodput& now) {
  if (now.ranks.empty()) return;
  goodput = now.goodput();
  name_culprits(now);
  for (const auto& [key, time] : accounts_of(now)) {
    Duration& peak = peaks_[key];
    Key counter = key;
    if (key.culprit && !named_.contains(*key.culprit)) counter.culprit = kOthers;
    counters[counter] += std::max(time - peak, Duration::zero());
    peak = std::max(peak, time);
  }
}

}  // namespace dlaunch
