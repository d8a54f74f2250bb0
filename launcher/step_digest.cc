#include "launcher/step_digest.h"

#include <algorithm>

namespace dlaunch {
namespace {

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

std::optional<StepTimes> StepDigest::add(const std::map<int, std::vector<FlightSpan>>& ranks) {
  std::uint64_t first = done_ == 0 ? 1 : done_, last = UINT64_MAX;
  for (const auto& [rank, spans] : ranks) {
    if (spans.empty()) return std::nullopt;
    first = std::max(first, spans.front().seq);
    last = std::min(last, spans.back().seq);
  }
  if (ranks.empty() || last == UINT64_MAX || last <= first) return std::nullopt;
  done_ = last;

  std::vector<std::vector<FlightSpan>> parts;
  for (const auto& [rank, spans] : ranks) {
    parts.push_back(cut(spans, first, last));
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
  return digest;
}

}  // namespace dlaunch
