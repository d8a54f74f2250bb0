#include "launcher/plan/host_shares.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

namespace dlaunch {
namespace {

constexpr int kNoLimit = std::numeric_limits<int>::max();

}  // namespace

Result<std::vector<int>> share_out(const std::vector<HostEntry>& hosts, std::optional<int> per_host,
                                   std::optional<int> total) {
  std::vector<int> room, shares;
  for (const HostEntry& host : hosts) {
    const int slots = per_host.value_or(host.slots.value_or(1));
    const int most = host.max_slots.value_or(kNoLimit);
    if (slots > most) {
      return usage_error(fmt::format("{} workers on host {} are more than its max_slots={}", slots,
                                     host.host, most));
    }
    shares.push_back(slots);
    room.push_back(per_host ? 0 : most - slots);
  }
  if (!total) return shares;
  int left = *total;
  for (int& share : shares) {
    share = std::min(share, left);
    left -= share;
  }
  while (left > 0) {
    const int before = left;
    for (std::size_t i = 0; i < shares.size() && left > 0; ++i) {
      if (room[i] == 0) continue;
      --room[i], ++shares[i], --left;
    }
    if (left < before) continue;
    const int most = std::accumulate(shares.begin(), shares.end(), 0);
    return usage_error(
        fmt::format("{} workers are more than the {} that the hosts may have", *total, most));
  }
  return shares;
}

}  // namespace dlaunch
