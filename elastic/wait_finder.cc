#include "elastic/wait_finder.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/flight.h"
#include "base/ring_names.h"

namespace dlaunch {
namespace {

constexpr Duration kRemembered = std::chrono::seconds(10);
constexpr std::size_t kMostPast = 256;
constexpr std::size_t kMostOpen = 1 << 18;  // operations that some rank has not left

bool is_message(const Span& span) { return span.what == kFlightSend || span.what == kFlightRecv; }

bool is_named(const Span& span, std::string_view first, std::string_view second) {
  if (span.what >= std::size(kCollectiveNames)) return false;
  const std::string_view name = kCollectiveNames[span.what];
  return name == first || name == second;
}

// Most of the delay was there.
WaitCause cause_of(const Span& late, Duration wait) {
  if (late.gc * 2 >= wait) return WaitCause::gc;
  if (late.input * 2 >= wait) return WaitCause::input;
  return WaitCause::compute;
}

}  // namespace

void WaitFinder::add(int round, int rank, int node, const Span& span) {
  if (span.kind == SpanKind::wait) {
    exposed_[rank].push_back({span.entered, span.left});
  } else if (is_message(span)) {
    if (messages_.size() < kMostOpen) messages_.push_back({rank, node, span});
  } else {
    if (collectives_.size() >= kMostOpen) collectives_.erase(collectives_.begin());
    collectives_[{round, span.group, span.seq}].push_back({rank, node, span});
  }
}

void WaitFinder::stood(int rank, TimePoint from, TimePoint to) {
  auto& intervals = stood_[rank];
  intervals.push_back({from, to});
  if (intervals.size() > kMostPast) intervals.pop_front();
}

std::vector<Wait> WaitFinder::take(TimePoint by) {
  std::vector<Wait> direct, found;
  for (auto it = collectives_.begin(); it != collectives_.end();) {
    const auto open = [by](const Entry& entry) { return entry.span.left > by; };
    if (std::ranges::any_of(it->second, open)) {
      ++it;
      continue;
    }
    judge(it->second, direct);
    it = collectives_.erase(it);
  }
  const auto later =
      std::stable_partition(messages_.begin(), messages_.end(),
                            [by](const Entry& entry) { return entry.span.left > by; });
  for (auto it = later; it != messages_.end(); ++it) {
    const Span& span = it->span;
    if (span.what != kFlightRecv || span.peer < 0) continue;
    add_exposed(*it, {it->rank, span.peer, WaitCause::compute, span.entered, span.left}, direct);
  }
  messages_.erase(later, messages_.end());
  std::ranges::stable_sort(direct, [](auto& a, auto& b) { return a.to < b.to; });
  for (const Wait& wait : direct) {
    for (const Wait& part : blamed(wait)) {
      found.push_back(part);
      auto& past = past_[part.rank];
      past.push_back(part);
      if (past.size() > kMostPast) past.pop_front();
    }
  }
  for (auto& [rank, intervals] : exposed_) {
    while (!intervals.empty() && intervals.front().to < by - kRemembered) intervals.pop_front();
  }
  return found;
}

void WaitFinder::judge(const Entries& entries, std::vector<Wait>& found) const {
  const auto by_entry = [](const Entry& a, const Entry& b) {
    return a.span.entered < b.span.entered;
  };
  const auto root = std::ranges::find_if(
      entries, [](const Entry& entry) { return entry.span.peer == entry.rank; });
  const Span& any = entries.front().span;
  const bool from_root = is_named(any, "broadcast", "scatter");
  const bool to_root = is_named(any, "reduce", "gather");
  if (from_root && root == entries.end()) return;
  const auto last = from_root ? root : std::ranges::max_element(entries, by_entry);
  // All ranks of the culprit's host came after all others.
  int there = 0;
  TimePoint first_there = TimePoint::max(), last_elsewhere{};
  for (const Entry& entry : entries) {
    if (entry.node == last->node) {
      ++there;
      first_there = std::min(first_there, entry.span.entered);
    } else {
      last_elsewhere = std::max(last_elsewhere, entry.span.entered);
    }
  }
  for (const Entry& entry : entries) {
    if (entry.rank == last->rank) add_stood(entry, entry.span.entered, found);
    if (entry.rank == last->rank || (to_root && entry.span.peer != entry.rank)) continue;
    add_stood(entry, std::max(last->span.entered, entry.span.entered), found);
    const TimePoint to = std::min(last->span.entered, entry.span.left);
    if (to <= entry.span.entered) continue;
    const Duration wait = to - entry.span.entered;
    WaitCause cause = cause_of(last->span, wait);
    const bool host = there > 1 && last_elsewhere != TimePoint{} && entry.node != last->node &&
                      (first_there - last_elsewhere) * 2 >= wait;
    if (cause == WaitCause::compute && host) cause = WaitCause::host;
    add_exposed(entry, {entry.rank, last->rank, cause, entry.span.entered, to}, found);
  }
}

void WaitFinder::add_stood(const Entry& entry, TimePoint from, std::vector<Wait>& found) const {
  for (const auto& [rank, intervals] : stood_) {
    if (rank == entry.rank) continue;
    for (const Interval& stood : intervals) {
      const TimePoint begin = std::max(from, stood.from), end = std::min(entry.span.left, stood.to);
      if (begin < end)
        add_exposed(entry, {entry.rank, rank, WaitCause::compute, begin, end}, found);
    }
  }
}

// The part in which the program itself waited.
void WaitFinder::add_exposed(const Entry& entry, const Wait& wait, std::vector<Wait>& found) const {
  if (entry.span.kind == SpanKind::call) return found.push_back(wait);
  const auto intervals = exposed_.find(entry.rank);
  if (intervals == exposed_.end()) return;
  for (const Interval& blocked : intervals->second) {
    Wait part = wait;
    part.from = std::max(wait.from, blocked.from);
    part.to = std::min(wait.to, blocked.to);
    if (part.from < part.to) found.push_back(part);
  }
}

// The wait in parts: those in which the culprit itself waited for a third rank are due to that one.
std::vector<Wait> WaitFinder::blamed(const Wait& wait) const {
  std::vector<Wait> parts;
  TimePoint at = wait.from;
  const auto add = [&](TimePoint to, int culprit, WaitCause cause) {
    if (to <= at) return;
    parts.push_back({wait.rank, culprit, cause, at, to});
    at = to;
  };
  const auto past = past_.find(wait.culprit);
  if (past != past_.end()) {
    for (const Wait& earlier : past->second) {
      if (earlier.to <= at || earlier.from >= wait.to || earlier.culprit == wait.rank) continue;
      add(std::min(earlier.from, wait.to), wait.culprit, wait.cause);
      add(std::min(earlier.to, wait.to), earlier.culprit, earlier.cause);
    }
  }
  add(wait.to, wait.culprit, wait.cause);
  return parts;
}

}  // namespace dlaunch
