#include "base/flight_tally.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "base/flight.h"

namespace dlaunch {
namespace {

// The class of a value. Each class but the last goes up to its bound.
std::size_t class_of(std::uint64_t value, std::uint64_t first, std::size_t classes) {
  if (value <= first) return 0;
  // The bits above those of the first bound, two for each class: bounds are four times the last.
  const auto bits = static_cast<std::size_t>(std::bit_width((value - 1) / first));
  return std::min((bits + 1) / 2, classes - 1);
}

void add(std::atomic<std::uint64_t>& sum, std::uint64_t value) {
  sum.store(sum.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

}  // namespace

void add_to_tally(FlightTally* of_kind, std::uint64_t bytes, std::uint64_t ns) {
  const auto* const end = std::end(kTallySizes);
  FlightTally& tally = of_kind[std::lower_bound(std::begin(kTallySizes), end, bytes) - kTallySizes];
  add(tally.times[class_of(ns, kTallyFirstNs, kTallyTimes)], 1);
  add(tally.ns, ns);
  if (bytes == 0) return;
  const double rate =
      static_cast<double>(bytes) * 1e9 / static_cast<double>(std::max<std::uint64_t>(ns, 1));
  const auto whole = static_cast<std::uint64_t>(std::min(rate, 1e18));
  add(tally.rates[class_of(whole, kTallyFirstRate, kTallyRates)], 1);
  add(tally.bytes, bytes);
}

std::vector<TallySums> read_tallies(std::string_view bytes) {
  struct Copied {
    std::uint64_t times[kTallyTimes], rates[kTallyRates], ns, bytes;
  };
  std::vector<TallySums> found;
  for (std::size_t i = 0; i < kTallyKinds * kTallySizeClasses; ++i) {
    const std::size_t at = offsetof(FlightFile, tallies) + sizeof(FlightTally) * i;
    if (at + sizeof(FlightTally) > bytes.size()) break;
    Copied tally;
    std::memcpy(&tally, bytes.data() + at, sizeof tally);
    if (std::all_of(std::begin(tally.times), std::end(tally.times),
                    [](std::uint64_t n) { return n == 0; })) {
      continue;
    }
    found.push_back({.kind = static_cast<std::uint8_t>(i / kTallySizeClasses),
                     .size = static_cast<std::uint8_t>(i % kTallySizeClasses),
                     .times = {std::begin(tally.times), std::end(tally.times)},
                     .rates = {std::begin(tally.rates), std::end(tally.rates)},
                     .ns = tally.ns,
                     .bytes = tally.bytes});
  }
  return found;
}

}  // namespace dlaunch
