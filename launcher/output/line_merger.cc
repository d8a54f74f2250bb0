#include "launcher/output/line_merger.h"

#include <algorithm>
#include <queue>

namespace dlaunch {

namespace {

// The approximate size of a held line with its places in the maps, and of each of its ranks.
constexpr std::size_t kCostOfLine = 320;
constexpr std::size_t kCostOfRank = 56;

}  // namespace

std::size_t LineMerger::cost(const Held& held) {
  return held.line.text.size() + kCostOfLine + kCostOfRank * held.line.ranks.size();
}

LineMerger::Held* LineMerger::find_equal(const std::optional<Key>& after,
                                         std::string_view line) const {
  constexpr Key kFirst{INT64_MIN, 0};
  const auto it = by_text_.upper_bound({line, after.value_or(kFirst)});
  return it != by_text_.end() && it->first.first == line ? it->second : nullptr;
}

LineMerger::Key LineMerger::key_behind(const std::optional<Key>& after) const {
  if (held_.empty()) return {0, arrivals_};
  if (!after) return {held_.begin()->first.place - 1, arrivals_};
  const bool at_end = *after == held_.rbegin()->first;
  return {after->place + (at_end ? 1 : 0), arrivals_};
}

void LineMerger::add(TimePoint now, int rank, std::string_view line) {
  auto& own = said_by_[rank];
  const auto after = own.empty() ? std::nullopt : std::optional(own.back()->key);
  if (Held* equal = find_equal(after, line)) {
    equal->line.ranks.insert(rank);
    own.push_back(equal);
    held_bytes_ += kCostOfRank;
    return;
  }
  const Key key = key_behind(after);
  auto held = std::make_unique<Held>(Held{{{rank}, std::string(line), now}, key});
  by_text_.emplace(std::pair(std::string_view(held->line.text), key), held.get());
  by_arrival_.emplace(arrivals_++, held.get());
  own.push_back(held.get());
  held_bytes_ += cost(*held);
  held_.emplace(key, std::move(held));
}

std::optional<LineMerger::Key> LineMerger::last_to_let_go(TimePoint now) const {
  if (held_bytes_ > kMaxHeldBytes) return held_.rbegin()->first;
  std::optional<Key> last;
  for (const auto& [arrival, held] : by_arrival_) {
    if (now < held->line.said + kWindow) break;
    last = std::max(last, std::optional(held->key));
  }
  // No rank can join lines up to the rank that is furthest behind.
  Key passed_by_all = held_.rbegin()->first;
  for (const int rank : present_) {
    const auto own = said_by_.find(rank);
    if (own == said_by_.end() || own->second.empty()) return last;
    passed_by_all = std::min(passed_by_all, own->second.back()->key);
  }
  return std::max(last, std::optional(passed_by_all));
}

std::vector<LineMerger::Merged> LineMerger::let_go_until(Key last) {
  auto later = [](const Held* a, const Held* b) { return a->key.arrival > b->key.arrival; };
  std::priority_queue<Held*, std::vector<Held*>, decltype(later)> ready(later);
  const auto end = held_.upper_bound(last);
  for (auto it = held_.begin(); it != end; ++it) {
    Held* const held = it->second.get();
    for (const int rank : held->line.ranks) held->blocked_by += said_by_[rank].front() != held;
    if (held->blocked_by == 0) ready.push(held);
  }
  std::vector<Merged> lines;
  while (!ready.empty()) {
    Held* const held = ready.top();
    ready.pop();
    for (const int rank : held->line.ranks) {
      auto& own = said_by_[rank];
      own.pop_front();
      if (!own.empty() && own.front()->key <= last && --own.front()->blocked_by == 0) {
        ready.push(own.front());
      }
    }
    held_bytes_ -= cost(*held);
    const Key key = held->key;
    by_text_.erase({held->line.text, key});
    by_arrival_.erase(key.arrival);
    lines.push_back(std::move(held->line));
    held_.erase(key);
  }
  return lines;
}

std::vector<LineMerger::Merged> LineMerger::take(TimePoint now) {
  if (held_.empty()) return {};
  const auto last = last_to_let_go(now);
  return last ? let_go_until(*last) : std::vector<Merged>();
}

std::vector<LineMerger::Merged> LineMerger::take_all() {
  return held_.empty() ? std::vector<Merged>() : let_go_until(held_.rbegin()->first);
}

std::optional<TimePoint> LineMerger::deadline() const {
  if (held_.empty()) return std::nullopt;
  return by_arrival_.begin()->second->line.said + kWindow;
}

}  // namespace dlaunch
