#include "launcher/lead/events/event_feed.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

// A program asks again within this time, or never.
constexpr Duration kBetween = std::chrono::seconds(2);

}  // namespace

void EventFeed::add(std::string line, bool last) {
  lines_.push_back(std::move(line));
  if (lines_.size() > kKept) lines_.pop_front();
  ++count_;
  ended_ = ended_ || last;
}

void EventFeed::ask(TimePoint now, std::optional<std::uint64_t> after, const Reply& reply) {
  if (after && !between_.empty()) between_.pop_front();
  const bool ours = after && *after >= origin_ && *after <= count_;
  const std::uint64_t from = ours ? *after : origin_;
  if (after && from == count_ && !ended_) {
    waiting_.push_back({from, reply, now + kPatience});
  } else {
    if (after) remember(now);
    answer(from, ours, reply);
  }
}

// Its program should ask again.
void EventFeed::remember(TimePoint now) {
  std::erase_if(between_, [&](TimePoint then) { return now - then >= kBetween; });
  if (!ended_) between_.push_back(now);
}

void EventFeed::answer(std::uint64_t after, bool ours, const Reply& reply) const {
  const std::uint64_t news = count_ - std::min(after, count_);
  const auto fresh = std::min<std::uint64_t>(news, lines_.size());
  reply({.lines = {lines_.end() - static_cast<std::ptrdiff_t>(fresh), lines_.end()},
         .next = count_,
         .missing = ours ? news - fresh : 0});
}

std::optional<TimePoint> EventFeed::deadline() const {
  std::optional<TimePoint> next;
  for (const Question& question : waiting_) {
    const bool news = question.after < count_;
    next = std::min(next.value_or(kNever), news ? TimePoint::min() : question.until);
  }
  return next;
}

void EventFeed::on_clock(TimePoint now) {
  std::vector<Question> due;
  std::erase_if(waiting_, [&](const Question& question) {
    const bool is_due = question.after < count_ || question.until <= now;
    if (is_due) due.push_back(question);
    return is_due;
  });
  for (const Question& question : due) {
    remember(now);
    answer(question.after, true, question.reply);
  }
}

bool EventFeed::owes_last(TimePoint now) const {
  return std::ranges::any_of(between_, [&](TimePoint then) { return now - then < kBetween; });
}

}  // namespace dlaunch
