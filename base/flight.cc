#include "base/flight.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace dlaunch {
namespace {

// A record as plain bytes: an atomic cannot be copied.
struct Copied {
  std::uint64_t number, seq, count;
  std::int64_t started_ns, ended_ns;
  std::int32_t peer, tag;
  std::uint8_t what, dtype, op, state;
};

bool makes_sense(const Copied& r) {
  return r.number > 0 && r.what < std::size(kFlightNames) && r.dtype < std::size(kDtypeNames) &&
         r.op < std::size(kOpNames) && r.state >= 1 && r.state <= 3;
}

std::string describe(const Copied& r) {
  if (r.what >= kCollectiveNames) {
    const std::string peer = r.peer < 0 ? "any rank" : fmt::format("rank {}", r.peer);
    return fmt::format("{} {} (tag {}, count {}, {})", kFlightNames[r.what], peer, r.tag, r.count,
                       kDtypeNames[r.dtype]);
  }
  std::string text = fmt::format("{} #{}", kFlightNames[r.what], r.seq);
  if (kFlightNames[r.what] == "barrier") return text;
  text += fmt::format(" (count {}, {}", r.count, kDtypeNames[r.dtype]);
  const bool reduces = kFlightNames[r.what].find("reduce") != std::string_view::npos;
  if (reduces) text += fmt::format(", {}", kOpNames[r.op]);
  if (r.peer >= 0) text += fmt::format(", root {}", r.peer);
  return text + ")";
}

TimePoint at(std::int64_t ns) { return TimePoint(std::chrono::nanoseconds(ns)); }

}  // namespace

std::vector<FlightEntry> read_flight(std::string_view bytes) {
  std::vector<Copied> records;
  for (std::size_t i = 0; i + sizeof(FlightRecord) <= std::min(bytes.size(), kFlightBytes);
       i += sizeof(FlightRecord)) {
    Copied record;
    std::memcpy(&record, bytes.data() + i, sizeof record);
    if (makes_sense(record)) records.push_back(record);
  }
  std::sort(records.begin(), records.end(),
            [](const Copied& a, const Copied& b) { return a.number < b.number; });
  std::vector<FlightEntry> entries;
  for (const auto& r : records) {
    entries.push_back(
        {describe(r), static_cast<FlightState>(r.state), at(r.started_ns), at(r.ended_ns)});
  }
  return entries;
}

}  // namespace dlaunch
