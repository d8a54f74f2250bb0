#include "launcher/lead/metrics/bandwidth_samples.h"

#include <numeric>

#include <nlohmann/json.hpp>

namespace dlaunch {

std::string BandwidthSamples::sample(TimePoint now, int ranks, const Tallies& tallies) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& [key, tally] : tallies) {
    const Sums sums{
        .calls = std::accumulate(tally.times.begin(), tally.times.end(), std::uint64_t{0}),
        .bytes = tally.bytes,
        .ns = tally.ns};
    Sums& told = told_[key];
    if (sums.calls > told.calls && sums.bytes > told.bytes && sums.ns > told.ns) {
      rows.push_back({{"kind", std::string(kCollectiveNames[key.first])},
                      {"size", std::string(kTallySizeNames[key.second])},
                      {"calls", sums.calls - told.calls},
                      {"bytes", sums.bytes - told.bytes},
                      {"ns", sums.ns - told.ns}});
      told = sums;
    }
  }
  if (rows.empty()) return "";
  const nlohmann::ordered_json line = {{"monotonic", to_seconds(now.time_since_epoch())},
                                       {"ranks", ranks},
                                       {"collectives", std::move(rows)}};
  return line.dump() + "\n";
}

}  // namespace dlaunch
