#include "cli/host_filter.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/ranges.h>

#include "base/nearest.h"
#include "base/text.h"
#include "base/units.h"

namespace dlaunch {
namespace {

constexpr int kHighestGpu = 4096;

const HostPick* find_pick(const std::vector<HostPick>& picks, const std::string& host) {
  const auto found = std::find_if(picks.begin(), picks.end(),
                                  [&](const HostPick& pick) { return pick.host == host; });
  return found == picks.end() ? nullptr : &*found;
}

Result<void> check_picks(const std::vector<HostEntry>& hosts, const std::vector<HostPick>& picks) {
  std::vector<std::string_view> names;
  names.reserve(hosts.size());
  for (const HostEntry& host : hosts) names.push_back(host.host);
  for (const HostPick& pick : picks) {
    const auto host = std::find_if(hosts.begin(), hosts.end(),
                                   [&](const HostEntry& entry) { return entry.host == pick.host; });
    if (host == hosts.end()) {
      return usage_error(fmt::format("host '{}' is not in the list of hosts{}", pick.host,
                                     did_you_mean(pick.host, names)));
    }
    if (!pick.gpus.empty() && pick.gpus.back() >= host->slots.value_or(1)) {
      return usage_error(fmt::format("host {} has {} slots, numbered from 0, and not {}", pick.host,
                                     host->slots.value_or(1), pick.gpus.back()));
    }
  }
  return {};
}

std::vector<int> gpus_left(const HostEntry& host, const HostPick* pick, bool keep) {
  std::vector<int> all(static_cast<std::size_t>(host.slots.value_or(1)));
  std::iota(all.begin(), all.end(), 0);
  if (pick == nullptr) return keep ? std::vector<int>() : all;
  if (pick->gpus.empty()) return keep ? all : std::vector<int>();
  if (keep) return pick->gpus;
  std::erase_if(all, [&](int gpu) {
    return std::find(pick->gpus.begin(), pick->gpus.end(), gpu) != pick->gpus.end();
  });
  return all;
}

bool are_first(const std::vector<int>& gpus) {
  return gpus.back() + 1 == static_cast<int>(gpus.size());
}

}  // namespace

Result<std::vector<HostPick>> parse_host_picks(std::string_view text) {
  std::vector<HostPick> picks;
  for (const auto word : split_words(text, '@')) {
    const auto colon = word.find(':');
    HostPick pick{std::string(word.substr(0, colon)), {}};
    if (pick.host.empty() || (colon != word.npos && colon + 1 == word.size())) {
      return usage_error(fmt::format("'{}' is not HOST or HOST:GPU,...", word));
    }
    for (const auto number : split_words(colon == word.npos ? "" : word.substr(colon + 1), ',')) {
      auto gpu = parse_int(std::string(number), 0, kHighestGpu, "GPU");
      if (!gpu) return gpu.error();
      pick.gpus.push_back(*gpu);
    }
    std::sort(pick.gpus.begin(), pick.gpus.end());
    pick.gpus.erase(std::unique(pick.gpus.begin(), pick.gpus.end()), pick.gpus.end());
    if (find_pick(picks, pick.host) != nullptr) {
      return usage_error(fmt::format("host '{}' is listed twice", pick.host));
    }
    picks.push_back(std::move(pick));
  }
  if (picks.empty()) return usage_error("it names no host");
  return picks;
}

Result<PickedHosts> pick_hosts(const std::vector<HostEntry>& hosts,
                               const std::vector<HostPick>& picks, bool keep) {
  if (auto good = check_picks(hosts, picks); !good) return good.error();
  PickedHosts picked;
  std::optional<std::vector<int>> first;
  bool alike = true;
  bool first_ones = true;
  for (const HostEntry& host : hosts) {
    const auto gpus = gpus_left(host, find_pick(picks, host.host), keep);
    if (gpus.empty()) continue;
    picked.hosts.push_back(host);
    picked.hosts.back().slots = static_cast<int>(gpus.size());
    if (!first) first = gpus;
    alike = alike && gpus == *first;
    first_ones = first_ones && are_first(gpus);
  }
  if (!first) return usage_error("no host is left");
  const bool by_number = std::any_of(picks.begin(), picks.end(),
                                     [](const HostPick& pick) { return !pick.gpus.empty(); });
  if (!by_number || (first_ones && !alike)) return picked;
  if (!alike) {
    return usage_error(
        "the hosts would use different GPUs, but a job has one CUDA_VISIBLE_DEVICES: choose the "
        "same GPUs on each host");
  }
  picked.gpus = fmt::format("{}", fmt::join(*first, ","));
  return picked;
}

}  // namespace dlaunch
