#include "launcher/wire/host_clock.h"

#include <algorithm>

namespace dlaunch {
namespace {

constexpr std::size_t kPingsKept = 32;
// A quartz clock is right to 50 parts in a million, and so is the other host's.
constexpr int kDriftParts = 10'000;

Duration drift(TimePoint from, TimePoint to) {
  return std::max(Duration::zero(), to - from) / kDriftParts;
}

}  // namespace

void HostClock::add(TimePoint sent, TimePoint back, Duration since) {
  if (back < sent) return;
  const Duration half = (back - sent) / 2;
  if (pings_.size() == kPingsKept) {
    // The best may be old; of the others the oldest is dropped.
    const auto oldest = pings_.begin() + (best(back) == pings_.data() ? 1 : 0);
    pings_.erase(oldest);
  }
  pings_.push_back({back, sent + half - since, half});
}

const HostClock::Ping* HostClock::best(TimePoint now) const {
  const auto least = std::ranges::min_element(pings_, [=](auto& a, auto& b) {
    return a.error + drift(a.at, now) < b.error + drift(b.at, now);
  });
  return least == pings_.end() ? nullptr : &*least;
}

TimePoint HostClock::origin(TimePoint now) const {
  const Ping* const ping = best(now);
  return ping == nullptr ? opened_ : ping->origin;
}

std::optional<Duration> HostClock::error(TimePoint now) const {
  const Ping* const ping = best(now);
  if (ping == nullptr) return std::nullopt;
  return ping->error + drift(ping->at, now);
}

}  // namespace dlaunch
