#include "launcher/lead/report/wait_samples.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace dlaunch {

TimePoint WaitSamples::due() const {
  return last_ + std::max(spans_interval(static_cast<int>(told_.size())), (last_ - begun_) / 500);
}

std::string WaitSamples::sample(TimePoint now, const Goodput& goodput) {
  std::map<int, Waits> all;
  for (const Goodput::Rank& rank : goodput.ranks) {
    Waits& own = all[rank.rank];
    for (const Goodput::Waits& wait : rank.waits) {
      own.waiting += wait.time;
      if (wait.culprit >= 0) all[wait.culprit].caused += wait.time;
    }
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  // A failure turns waits into lost work: the sum may shrink.
  const auto since = [](Duration sum, Duration told) {
    return to_seconds(std::max(sum - told, Duration::zero()));
  };
  for (const auto& [rank, waits] : all) {
    const Waits told = told_[rank];
    rows.push_back({{"rank", rank},
                    {"waiting", since(waits.waiting, told.waiting)},
                    {"caused", since(waits.caused, told.caused)}});
  }
  const nlohmann::ordered_json line = {{"monotonic", to_seconds(now.time_since_epoch())},
                                       {"seconds", to_seconds(now - last_)},
                                       {"ranks", std::move(rows)}};
  told_ = std::move(all);
  last_ = now;
  return line.dump() + "\n";
}

}  // namespace dlaunch
