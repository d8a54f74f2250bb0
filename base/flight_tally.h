// Tallies of a rank's collectives, in its flight record: how many have ended well, by kind, size,
// time and rate. A reader may see one collective in part.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "base/ring_names.h"

namespace dlaunch {

inline constexpr std::size_t kTallyKinds = std::size(kCollectiveNames);

// Classes of sizes, in bytes: each up to its bound, and one more.
inline constexpr std::uint64_t kTallySizes[] = {4ULL << 10, 256ULL << 10, 16ULL << 20, 1ULL << 30};
inline constexpr std::string_view kTallySizeNames[] = {"4KiB", "256KiB", "16MiB", "1GiB", "more"};
inline constexpr std::size_t kTallySizeClasses = std::size(kTallySizeNames);
static_assert(kTallySizeClasses == std::size(kTallySizes) + 1);

// Upper bounds of the classes of times and rates, each four times the one before; and one more.
inline constexpr std::uint64_t kTallyFirstNs = 4096;          // the last: 17 s
inline constexpr std::uint64_t kTallyFirstRate = 1ULL << 20;  // bytes a second; the last: 256 GiB/s
inline constexpr std::size_t kTallyTimes = 13, kTallyRates = 11;
constexpr std::uint64_t tally_bound(std::uint64_t first, std::size_t at) {
  return first << (2 * at);
}

struct alignas(64) FlightTally {
  std::atomic<std::uint64_t> times[kTallyTimes];
  std::atomic<std::uint64_t> rates[kTallyRates];
  std::atomic<std::uint64_t> ns{0}, bytes{0};  // sums
};

// Adds a collective of that many bytes to the tallies of its kind, one for each class of sizes.
// One thread at a time.
void add_to_tally(FlightTally* of_kind, std::uint64_t bytes, std::uint64_t ns);

// A tally as read from a file, or the sum of several.
struct TallySums {
  std::uint8_t kind = 0, size = 0;  // indices into kCollectiveNames and kTallySizeNames
  std::vector<std::uint64_t> times, rates;
  std::uint64_t ns = 0, bytes = 0;
};
// Those that are not empty. From the contents of a record file.
std::vector<TallySums> read_tallies(std::string_view bytes);

}  // namespace dlaunch
