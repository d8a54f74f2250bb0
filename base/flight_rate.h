// How much a rank does, by its flight record.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"

namespace dlaunch {

// Operations that began, and the bytes that its own call named for each of them.
struct FlightRate {
  std::uint64_t operations = 0, bytes = 0;
  Duration over{};  // 0: there were none
};
// Of the last 5 s, or of the shorter time that the record still knows. From a file's contents.
FlightRate read_rate(std::string_view bytes, TimePoint now);

}  // namespace dlaunch
