#include "elastic/straggler.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace dlaunch {
namespace {

constexpr int kFewestRanks = 3;    // of two, one is slow only compared with the other
constexpr double kWorthwhile = 3;  // times the cost of a recovery
constexpr double kHelped = 0.5;    // of the promised gain
constexpr int kNodesPerEviction = 10;
constexpr Duration kEvictionMemory = std::chrono::hours(1);

}  // namespace

StragglerJudge::StragglerJudge(StragglerJudgeConfig config)
    : config_(config), detector_(config.detection), recovery_cost_(config.recovery_cost) {}

std::vector<StragglerJudge::Action> StragglerJudge::step(TimePoint now, const Event& event) {
  actions_.clear();
  if (config_.mode != StragglerMode::off) {
    std::visit([&](const auto& what) { on(now, what); }, event);
  }
  return std::move(actions_);
}

void StragglerJudge::on(TimePoint, const NewRound& event) {
  round_ = event;
  round_began_ = true;
  detector_.reset(event.ranks);
}

void StragglerJudge::on(TimePoint, const Recovered& event) { recovery_cost_ = event.cost; }

void StragglerJudge::on(TimePoint now, const StepTimes& event) {
  const auto window = detector_.add(now, event);
  if (!window || window->warmup) return;
  for (const Slowness& slowness : window->raised) actions_.push_back(Warn{slowness});
  for (const Slowness& slowness : window->cleared) actions_.push_back(Clear{slowness});
  if (config_.mode == StragglerMode::warn) return;
  compare(now, window->step);
  consider(now, window->step);
}

// After an action: did it bring the promised gain?
void StragglerJudge::compare(TimePoint now, double step) {
  if (stage_ != Stage::restarting && stage_ != Stage::evicting) return;
  if (!round_began_) {  // the action was not carried out
    if (now - *acted_ >= config_.cooldown) stage_ = Stage::none;
    return;
  }
  const Stage done = std::exchange(stage_, Stage::none);
  if (step_before_ - step >= kHelped * gain_) return;
  if (done == Stage::restarting && config_.mode == StragglerMode::evict) {
    stage_ = Stage::restarted_in_vain;
    return;
  }
  refrain(now, rank_, config_.hold,
          fmt::format("the {} of rank {} did not help: a step took {} before and takes {} now",
                      done == Stage::restarting ? "restart" : "eviction", rank_,
                      format_seconds(step_before_), format_seconds(step)));
}

void StragglerJudge::consider(TimePoint now, double step) {
  if (stage_ == Stage::restarting || stage_ == Stage::evicting || now < not_before_) return;
  const auto slowness = worst();
  if (!slowness || round_.ranks < kFewestRanks) return;
  const double saved = slowness->gain * to_seconds(config_.horizon);
  const double cost = to_seconds(recovery_cost_);
  if (saved <= kWorthwhile * cost) return;
  if (stage_ == Stage::restarted_in_vain && rank_ == slowness->rank) {
    const std::string obstacle = why_not_evicted(now);
    if (obstacle.empty()) return act(now, *slowness, step, Stage::evicting);
    return refrain(now, rank_, config_.cooldown,
                   fmt::format("rank {} is not evicted: {}", rank_, obstacle));
  }
  if (!acted_ || now - *acted_ >= config_.cooldown) act(now, *slowness, step, Stage::restarting);
}

// The slow rank whose absence gains most.
std::optional<Slowness> StragglerJudge::worst() const {
  std::optional<Slowness> found;
  for (const Slowness& slowness : detector_.slow()) {
    if (slowness.peer == kNoPeer && (!found || slowness.gain > found->gain)) found = slowness;
  }
  return found;
}

std::string StragglerJudge::why_not_evicted(TimePoint now) const {
  if (round_.spares == 0 && round_.ranks <= round_.min_ranks) {
    return fmt::format("there is no spare, and the job needs all its {} ranks", round_.ranks);
  }
  const auto recent =
      std::ranges::count_if(evicted_, [&](TimePoint then) { return now - then < kEvictionMemory; });
  if (recent >= std::max(1, round_.nodes / kNodesPerEviction)) {
    return fmt::format("{} of {} nodes evicted within an hour are enough", recent, round_.nodes);
  }
  return {};
}

void StragglerJudge::act(TimePoint now, const Slowness& slowness, double step, Stage stage) {
  stage_ = stage;
  rank_ = slowness.rank;
  round_began_ = false;
  step_before_ = step;
  gain_ = slowness.gain * step;
  acted_ = now;
  if (stage == Stage::restarting) {
    actions_.push_back(Restart{rank_, slowness.sentence});
    return;
  }
  while (!evicted_.empty() && now - evicted_.front() >= kEvictionMemory) evicted_.pop_front();
  evicted_.push_back(now);
  actions_.push_back(Evict{rank_, slowness.sentence + "; a restart did not help"});
}

void StragglerJudge::refrain(TimePoint now, int rank, Duration time, std::string why) {
  not_before_ = deadline_after(now, time);
  why += fmt::format("; no action for {}", format_duration(time));
  actions_.push_back(Refrain{rank, std::move(why)});
}

}  // namespace dlaunch
