#include "launcher/step_digest.h"

#include <algorithm>

namespace dlaunch {
namespace {

// Sockets are all of one kind.
constexpr int kSocket = 1;
// What comes in one read takes no time that could be measured, but no link is faster than memory.
constexpr double kFastest = 10e9;  // bytes a second

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// The spans with these numbers, if all of them are there.
std::vector<FlightSpan> cut(const std::vector<FlightSpan>& spans, std::uint64_t first,
                            std::uint64_t last) {
  std::vector<FlightSpan> part;
  std::copy_if(spans.begin(), spans.end(), std::back_inserter(part),
               [&](const FlightSpan& span) { return span.seq >= first && span.seq <= last; });
  if (part.size() != last - first + 1) part.clear();
  return part;
}

}  // namespace

std::optional<StepTimes> StepDigest::add(const std::map<int, Record>& ranks) {
  std::uint64_t first = done_ == 0 ? 1 : done_, last = UINT64_MAX;
  for (const auto& [rank, record] : ranks) {
    if (record.spans.empty()) return std::nullopt;
    first = std::max(first, record.spans.front().seq);
    last = std::min(last, record.spans.back().seq);
  }
  if (ranks.empty() || last == UINT64_MAX || last <= first) return std::nullopt;
  done_ = last;

  std::vector<std::vector<FlightSpan>> parts;
  for (const auto& [rank, record] : ranks) {
    parts.push_back(cut(record.spans, first, last));
    if (parts.back().empty()) return std::nullopt;
  }
  const auto steps = static_cast<double>(last - first);
  StepTimes digest{.steps = static_cast<int>(last - first), .ranks = {}, .links = {}};
  for (const auto& part : parts) {
    RankTimes times;
    // From the entry into the first to that into the last: the time outside belongs to the entry
    // that follows it.
    for (std::size_t i = 1; i < part.size(); ++i) {
      TimePoint earliest = part[i].entered;
      for (const auto& other : parts) earliest = std::min(earliest, other[i].entered);
      times.late += seconds(part[i].entered - earliest) / steps;
      times.in_op += seconds(part[i - 1].left - part[i - 1].entered) / steps;
    }
    times.step = seconds(part.back().entered - part.front().entered) / steps;
    digest.ranks.push_back(times);
  }
  digest.links = links(ranks);
  return digest;
}

// For one collective; the records of those done meanwhile may have been overwritten.
std::vector<LinkTimes> StepDigest::links(const std::map<int, Record>& ranks) {
  std::vector<LinkTimes> links;
  for (const auto& [rank, record] : ranks) {
    for (const auto& now : record.received) {
      const Look before = std::exchange(looks_[{now.peer, rank}], Look{now, done_});
      if (before.done == 0 || done_ <= before.done || now.bytes <= before.received.bytes) continue;
      const auto calls = static_cast<double>(done_ - before.done);
      const auto bytes = static_cast<double>(now.bytes - before.received.bytes);
      const double time = seconds(now.time - before.received.time);
      links.push_back({.from = now.peer,
                       .to = rank,
                       .kind = kSocket,
                       .bytes = bytes / calls,
                       .seconds = std::max(time, bytes / kFastest) / calls});
    }
  }
  return links;
}

}  // namespace dlaunch
