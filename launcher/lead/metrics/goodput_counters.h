// GoodputCounters: the accounts of goodput as counters. Pure.
//
// An account may shrink: a failure turns work into lost work, and transfer turns out to be a wait.
// A counter may not, so it stands still until its account has grown beyond its earlier peak.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "elastic/goodput_ledger.h"

namespace dlaunch {

class GoodputCounters {
 public:
  // So many ranks at most have counters of their own as culprits. In a larger job a rank gets them
  // once it has cost this share of all rank-seconds.
  static constexpr std::size_t kMostCulprits = 256;
  static constexpr double kLeastShare = 0.001;
  static constexpr int kOthers = -1;  // all other culprits, and those that are not known

  struct Key {
    std::string_view account;        // as in GoodputTotals::accounts()
    std::optional<int> culprit;      // of waiting, recovery and lost_work
    std::optional<WaitCause> cause;  // of waiting
    bool operator<(const Key& other) const {
      return std::tie(account, culprit, cause) <
             std::tie(other.account, other.culprit, other.cause);
    }
  };

  void take(const Goodput& goodput);

  std::map<Key, Duration> counters;
  std::optional<double> goodput;  // none: no rank has begun

 private:
  using Accounts = std::map<Key, Duration>;
  static Accounts accounts_of(const Goodput& goodput);
  void name_culprits(const Goodput& now);

  Accounts peaks_;
  std::set<int> named_;  // culprits with counters of their own
};

}  // namespace dlaunch
