#include "launcher/lead/monitor/rank_tails.h"

#include <algorithm>
#include <utility>

#include "launcher/wire/json_text.h"

namespace dlaunch {
namespace {

// A host passes lines on for so long after a question. Programs ask at least every
// EventFeed::kPatience.
constexpr Duration kLasts = 2 * EventFeed::kPatience;
constexpr Duration kRenew = EventFeed::kPatience / 2;

const char* const kEnd = R"({"ended":true})";

std::string json_line(const std::string& from, const NodeLine& line) {
  return json_text<nlohmann::ordered_json>({{"stream", line.err ? "stderr" : "stdout"},
                                            {"text", line.text},
                                            {"from", from},
                                            {"end", line.end}});
}

}  // namespace

void RankTails::ask(TimePoint now, int rank, std::optional<std::uint64_t> after,
                    const Reply& reply) {
  std::erase_if(tails_, [&](const auto& one) { return now - one.second.asked > kLasts; });
  const auto origin = static_cast<std::uint64_t>(now.time_since_epoch().count());
  const auto [it, is_new] = tails_.try_emplace(rank, origin);
  Tail& tail = it->second;
  if (is_new && ended_) tail.feed.add(kEnd, true);
  tail.asked = now;
  attend(now, rank, tail);
  if (after) return tail.feed.ask(now, after, reply);
  tail.first.push_back(reply);
  if (tail.told || tail.slot < 0) answer_first(now, tail);
}

void RankTails::attend(TimePoint now, int rank, Tail& tail) {
  const Slot slot = ended_ ? -1 : slot_of_(rank);
  const bool moved = slot != tail.slot;
  tail.slot = slot;
  if (slot < 0 || (!moved && now - tail.renewed < kRenew)) return;
  tail.renewed = now;
  ask_(slot, kLasts, !moved);
}

void RankTails::answer_first(TimePoint now, Tail& tail) {
  for (const Reply& reply : std::exchange(tail.first, {})) tail.feed.ask(now, {}, reply);
}

void RankTails::take(TimePoint now, Slot slot, const std::string& from, const NodeOutput& output) {
  look(now);  // lines of a new process may come before its round has begun
  for (auto& [rank, tail] : tails_) {
    if (tail.slot != slot) continue;
    if (output.lost > 0) {
      tail.feed.add(nlohmann::json{{"lost_bytes", output.lost}}.dump(), false);
    }
    for (const NodeLine& line : output.lines) tail.feed.add(json_line(from, line), false);
    tail.told = true;
    answer_first(now, tail);
    tail.feed.on_clock(now);
  }
}

void RankTails::look(TimePoint now) {
  for (auto& [rank, tail] : tails_) {
    if (now - tail.asked <= kLasts) attend(now, rank, tail);
  }
}

void RankTails::lost(Slot slot) {
  for (auto& [rank, tail] : tails_) {
    if (tail.slot == slot) tail.slot = -1;
  }
}

void RankTails::end(TimePoint now) {
  if (std::exchange(ended_, true)) return;
  for (auto& [rank, tail] : tails_) {
    tail.feed.add(kEnd, true);
    answer_first(now, tail);
    tail.feed.on_clock(now);
  }
}

std::optional<TimePoint> RankTails::deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [rank, tail] : tails_) {
    if (const auto due = tail.feed.deadline()) next = std::min(next.value_or(kNever), *due);
  }
  return next;
}

void RankTails::on_clock(TimePoint now) {
  for (auto& [rank, tail] : tails_) tail.feed.on_clock(now);
}

bool RankTails::owes_last(TimePoint now) const {
  return std::ranges::any_of(tails_,
                             [&](const auto& one) { return one.second.feed.owes_last(now); });
}

}  // namespace dlaunch
