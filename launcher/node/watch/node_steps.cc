#include "launcher/node/watch/node_steps.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

constexpr std::size_t kMostLinks = 16;  // of a rank: those with the most bytes

// The spans with these numbers, if all of them are recorded.
std::vector<FlightSpan> part_of(const std::vector<FlightSpan>& spans, std::uint64_t first,
                                std::uint64_t last) {
  std::vector<FlightSpan> part;
  std::ranges::copy_if(spans, std::back_inserter(part), [&](const FlightSpan& span) {
    return span.seq >= first && span.seq <= last;
  });
  if (part.empty() || part.size() - 1 != last - first) part.clear();
  return part;
}

// From the entry into the first to the entry into the last: the time outside belongs to the entry
// after it.
NodeRankTimes times_of(int rank, const std::vector<FlightSpan>& part) {
  const auto steps = static_cast<Duration::rep>(part.size() - 1);
  Duration entered{}, in_op{};
  for (std::size_t i = 1; i < part.size(); ++i) {
    entered += part[i].entered - part[0].entered;
    in_op += part[i - 1].left - part[i - 1].entered;
  }
  return {.rank = rank,
          .entered = part[0].entered + entered / steps,
          .in_op = in_op / steps,
          .step = (part.back().entered - part[0].entered) / steps};
}

}  // namespace

std::optional<NodeSpans> NodeSteps::look(std::uint32_t look, std::map<int, Record> ranks) {
  look_ = look;
  ranks_ = std::move(ranks);
  NodeSpans spans{.look = look, .first = 0, .last = UINT64_MAX};
  for (const auto& [rank, record] : ranks_) {
    if (record.spans.empty()) return std::nullopt;
    spans.first = std::max(spans.first, record.spans.front().seq);
    spans.last = std::min(spans.last, record.spans.back().seq);
  }
  if (ranks_.empty() || spans.last < spans.first) return std::nullopt;
  return spans;
}

std::optional<NodeTimes> NodeSteps::cut(const NodeCut& cut) const {
  if (cut.look != look_ || cut.last <= cut.first) return std::nullopt;
  NodeTimes times{.look = look_};
  for (const auto& [rank, record] : ranks_) {
    const auto part = part_of(record.spans, cut.first, cut.last);
    if (part.empty()) return std::nullopt;
    times.ranks.push_back(times_of(rank, part));
    auto received = record.received;
    std::ranges::stable_sort(received, [](auto& a, auto& b) { return a.bytes > b.bytes; });
    if (received.size() > kMostLinks) received.resize(kMostLinks);
    for (const FlightReceived& from : received) {
      times.links.push_back({from.peer, rank, from.bytes, from.time});
    }
  }
  return times;
}

}  // namespace dlaunch
