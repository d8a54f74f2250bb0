// A rank's rate of work, by its flight record.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace dlaunch {

// Operations begun, and the bytes that the rank's own calls named for them.
struct FlightRate {
  std::uint64_t operations = 0, bytes = 0;
  Duration over{};  // 0: there were no operations
};
// For the last 5 s, or the shorter time that the record still covers. From a file's contents.
FlightRate read_rate(std::string_view bytes, TimePoint now);

}  // namespace dlaunch
