#include "launcher/lead/monitor/stack_hold.h"

#include <utility>

namespace dlaunch {
namespace {

// Stacks that are so old are taken again.
constexpr Duration kFresh = std::chrono::seconds(10);

}  // namespace

std::vector<StackHold::Action> StackHold::step(TimePoint now, const Event& event) {
  return std::visit([&](const auto& what) { return on(now, what); }, event);
}

std::vector<StackHold::Action> StackHold::on(TimePoint now, const Ended& event) {
  const bool failed = has_failed(event.end);
  held_.push_back({event.slot, event.end});
  if (until_) return failed && !event.may_follow ? pass_all() : std::vector<Action>();
  if (!failed || !event.may_follow || event.others.empty()) return pass_all();
  std::vector<Action> actions = take(now, event.others);
  if (awaited_.empty()) return pass_all();
  until_ = now + kStackHold;
  return actions;
}

std::vector<StackHold::Action> StackHold::on(TimePoint now, const GaveUp& event) {
  return take(now, event.others);
}

std::vector<StackHold::Action> StackHold::take(TimePoint now, const std::vector<Slot>& others) {
  if (others.empty() || (taken_ && now < *taken_ + kFresh)) return {};
  taken_ = now;
  awaited_ = {others.begin(), others.end()};
  return {TakeStacks{others}};
}

std::vector<StackHold::Action> StackHold::on(TimePoint, const Answered& event) {
  if (awaited_.erase(event.slot) == 0 || !awaited_.empty() || !until_) return {};
  return pass_all();
}

std::vector<StackHold::Action> StackHold::on(TimePoint, const Hurry&) { return pass_all(); }

std::vector<StackHold::Action> StackHold::on(TimePoint now, const Clock&) {
  return until_ && now >= *until_ ? pass_all() : std::vector<Action>();
}

std::vector<StackHold::Action> StackHold::pass_all() {
  until_.reset();
  std::vector<Action> actions;
  for (PassOn& end : std::exchange(held_, {})) actions.emplace_back(std::move(end));
  return actions;
}

}  // namespace dlaunch
