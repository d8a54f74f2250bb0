#include "launcher/lead/monitor/step_digest.h"

#include <algorithm>

namespace dlaunch {
namespace {

// The bytes of a single read take no measurable time, but no link is faster than memory.
constexpr double kFastest = 10e9;  // bytes a second

}  // namespace

void StepDigest::reset() {
  const std::uint32_t look = look_;
  *this = StepDigest();
  look_ = look;
}

NodeLook StepDigest::begin(std::set<int> nodes) {
  ++look_;
  open_ = true;
  nodes_ = std::move(nodes);
  spans_.clear();
  answers_.clear();
  cut_.reset();
  return {look_};
}

std::optional<NodeCut> StepDigest::add(int node, const NodeSpans& spans) {
  if (spans.look != look_ || !nodes_.contains(node) || cut_) return std::nullopt;
  spans_[node] = spans;
  if (spans_.size() < nodes_.size()) return std::nullopt;
  open_ = false;
  NodeCut cut{look_, done_ == 0 ? 1 : done_, UINT64_MAX};
  for (const auto& [from, known] : spans_) {
    cut.first = std::max(cut.first, known.first);
    cut.last = std::min(cut.last, known.last);
  }
  if (cut.last <= cut.first || cut.last - cut.first >= kFlightRecords) return std::nullopt;
  cut_ = cut;
  open_ = true;
  return cut_;
}

std::optional<StepTimes> StepDigest::add(int node, const NodeTimes& times) {
  if (times.look != look_ || !cut_ || !nodes_.contains(node)) return std::nullopt;
  answers_[node] = times;
  if (answers_.size() < nodes_.size()) return std::nullopt;
  open_ = false;
  auto step = digest();
  cut_.reset();
  return step;
}

std::optional<StepTimes> StepDigest::digest() {
  std::map<int, NodeRankTimes> ranks;
  std::map<int, int> nodes;  // by rank
  TimePoint earliest = TimePoint::max();
  for (const auto& [node, answer] : answers_) {
    for (const NodeRankTimes& times : answer.ranks) {
      if (!ranks.emplace(times.rank, times).second) return std::nullopt;
      nodes[times.rank] = node;
      earliest = std::min(earliest, times.entered);
    }
  }
  const bool all = !ranks.empty() && ranks.begin()->first == 0 &&
                   ranks.rbegin()->first == static_cast<int>(ranks.size()) - 1;
  if (!all) return std::nullopt;
  done_ = cut_->last;
  StepTimes step{.steps = static_cast<int>(cut_->last - cut_->first), .ranks = {}, .links = {}};
  for (const auto& [rank, times] : ranks) {
    step.ranks.push_back({.late = to_seconds(times.entered - earliest),
                          .in_op = to_seconds(times.in_op),
                          .step = to_seconds(times.step)});
  }
  step.links = links(nodes);
  return step;
}

// Per collective; records of those done meanwhile may have been overwritten.
std::vector<LinkTimes> StepDigest::links(const std::map<int, int>& nodes) {
  std::map<int, int> lowest;  // rank, by node
  for (const auto& [rank, node] : nodes) lowest.emplace(node, rank);
  std::map<std::pair<int, int>, LinkTimes> found;  // by receiver and sender
  for (const auto& [node, answer] : answers_) {
    for (const NodeReceived& now : answer.links) {
      const auto sender = nodes.find(now.from);
      if (sender == nodes.end()) continue;
      const Seen before = std::exchange(links_[{now.from, now.to}], Seen{now, done_});
      if (before.done == 0 || done_ <= before.done || now.bytes <= before.received.bytes) continue;
      const auto calls = static_cast<double>(done_ - before.done);
      const auto bytes = static_cast<double>(now.bytes - before.received.bytes);
      const double time = to_seconds(now.time - before.received.time);
      const bool near = sender->second == node;
      const int from = near ? now.from : lowest.at(sender->second);
      const int to = near ? now.to : lowest.at(node);
      LinkTimes& link = found[{to, from}];
      link.from = from;
      link.to = to;
      link.kind = near ? kWithinHost : kBetweenHosts;
      link.bytes += bytes / calls;
      link.seconds += std::max(time, bytes / kFastest) / calls;
    }
  }
  std::vector<LinkTimes> links;
  links.reserve(found.size());
  for (const auto& [ends, link] : found) links.push_back(link);
  return links;
}

}  // namespace dlaunch
