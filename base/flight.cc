#include "base/flight.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/flight_rate.h"
#include "base/ring_names.h"

namespace dlaunch {
namespace {

constexpr Duration kRateOver = std::chrono::seconds(5), kRateLeast = std::chrono::seconds(1);

// A record as plain bytes: an atomic cannot be copied.
struct Copied {
  std::uint64_t number, seq, count;
  std::int64_t started_ns, ended_ns;
  std::int32_t peer, tag;
  std::uint8_t what, dtype, op, state;
  std::uint32_t group;
};

bool is_message(const Copied& r) { return r.what == kFlightSend || r.what == kFlightRecv; }

bool makes_sense(const Copied& r) {
  return r.number > 0 && (r.what < std::size(kCollectiveNames) || is_message(r)) &&
         r.dtype < std::size(kDtypeNames) && (r.op < std::size(kOpNames) || r.op == kFlightNoOp) &&
         r.state >= 1 && r.state <= static_cast<std::uint8_t>(kLastFlightState) &&
         r.started_ns >= 0 && r.ended_ns >= 0;
}

std::string describe(const Copied& r) {
  if (is_message(r)) {
    const std::string peer = r.peer < 0 ? "any rank" : fmt::format("rank {}", r.peer);
    return fmt::format("{} {} (tag {}, count {}, {})",
                       r.what == kFlightSend ? "send to" : "recv from", peer, r.tag, r.count,
                       kDtypeNames[r.dtype]);
  }
  std::string text = fmt::format("{} #{}", kCollectiveNames[r.what], r.seq);
  if (kCollectiveNames[r.what] == "barrier") return text;
  text += fmt::format(" (count {}, {}", r.count, kDtypeNames[r.dtype]);
  if (r.op != kFlightNoOp) text += fmt::format(", {}", kOpNames[r.op]);
  if (r.peer >= 0) text += fmt::format(", root {}", r.peer);
  return text + ")";
}

TimePoint at(std::int64_t ns) { return TimePoint(std::chrono::nanoseconds(ns)); }

// The sensible records, oldest first.
std::vector<Copied> read_records(std::string_view bytes) {
  std::vector<Copied> records;
  for (std::size_t i = 0;
       i + sizeof(FlightRecord) <= std::min(bytes.size(), sizeof(FlightFile::records));
       i += sizeof(FlightRecord)) {
    Copied record;
    std::memcpy(&record, bytes.data() + i, sizeof record);
    if (makes_sense(record)) records.push_back(record);
  }
  std::sort(records.begin(), records.end(),
            [](const Copied& a, const Copied& b) { return a.number < b.number; });
  return records;
}

}  // namespace

std::vector<FlightPosition> read_positions(std::string_view bytes) {
  std::map<std::uint32_t, FlightPosition> last;
  for (const auto& r : read_records(bytes)) {
    FlightPosition& position = last[r.group];
    if (is_message(r) || r.seq < position.seq) continue;
    const bool inside = static_cast<FlightState>(r.state) == FlightState::running;
    position = {r.group, r.seq, r.what, inside, at(inside ? r.started_ns : r.ended_ns)};
  }
  std::vector<FlightPosition> positions;
  for (const auto& [group, position] : last) {
    if (position.seq > 0) positions.push_back(position);
  }
  return positions;
}

std::vector<FlightSpan> read_spans(std::string_view bytes) {
  std::vector<FlightSpan> spans;
  for (const auto& r : read_records(bytes)) {
    if (is_message(r) || r.group != 0 || static_cast<FlightState>(r.state) != FlightState::done) {
      continue;
    }
    spans.push_back({r.seq, at(r.started_ns), at(r.ended_ns)});
  }
  std::sort(spans.begin(), spans.end(),
            [](const FlightSpan& a, const FlightSpan& b) { return a.seq < b.seq; });
  return spans;
}

std::vector<FlightReceived> read_received(std::string_view bytes) {
  struct Copied {
    std::uint64_t bytes;
    std::int64_t ns;
    std::uint64_t check;
  };
  std::vector<FlightReceived> received;
  for (int peer = 0; peer < kFlightLinks; ++peer) {
    const std::size_t at = offsetof(FlightFile, links) + sizeof(FlightLink) * peer;
    if (at + sizeof(FlightLink) > bytes.size()) break;
    Copied link;
    std::memcpy(&link, bytes.data() + at, sizeof link);
    const bool whole = link.check == check_of(link.bytes, link.ns) && link.ns >= 0;
    if (whole && link.bytes > 0) {
      received.push_back({peer, link.bytes, std::chrono::nanoseconds(link.ns)});
    }
  }
  return received;
}

std::string flight_file(const std::string& round_dir, int rank) {
  return round_dir + "/flight." + std::to_string(rank);
}

std::vector<FlightEntry> read_flight(std::string_view bytes) {
  std::vector<FlightEntry> entries;
  for (const auto& r : read_records(bytes)) {
    entries.push_back({.what = describe(r),
                       .state = static_cast<FlightState>(r.state),
                       .started = at(r.started_ns),
                       .ended = at(r.ended_ns),
                       .number = r.number,
                       .seq = r.seq,
                       .count = r.count,
                       .group = r.group,
                       .kind = r.what,
                       .dtype = r.dtype});
  }
  return entries;
}

// A full record has lost the time before its oldest operation, so that operation does not count.
FlightRate read_rate(std::string_view bytes, TimePoint now) {
  const auto records = read_records(bytes);
  if (records.empty()) return {};
  const bool full = records.back().number > kFlightRecords;
  const TimePoint first = at(records.front().started_ns);
  FlightRate rate;
  for (std::size_t i = full ? 1 : 0; i < records.size(); ++i) {
    if (at(records[i].started_ns) < now - kRateOver) continue;
    ++rate.operations;
    rate.bytes += records[i].count * kDtypeBytes[records[i].dtype];
  }
  if (rate.operations == 0) return {};
  const Duration least = full ? std::chrono::microseconds(1) : kRateLeast;
  rate.over = std::clamp<Duration>(now - first, least, kRateOver);
  return rate;
}

}  // namespace dlaunch
