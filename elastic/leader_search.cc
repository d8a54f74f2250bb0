#include "elastic/leader_search.h"

#include <algorithm>

namespace dlaunch {
namespace {

constexpr Duration kRefused = std::chrono::seconds(10);
constexpr Duration kWarnAfter = std::chrono::seconds(5);

}  // namespace

LeaderSearch::LeaderSearch(const Config& config, TimePoint now)
    : config_(config),
      give_up_at_(deadline_after(now, config.join_timeout)),
      refused_until_(give_up_at_),
      warn_at_(now + kWarnAfter) {}

void LeaderSearch::lost(TimePoint now, bool goes_on) {
  give_up_at_ = refused_until_ = deadline_after(now, config_.join_timeout);
  if (!config_.leader_returns && !goes_on) refused_until_ = std::min(give_up_at_, now + kRefused);
  warn_at_ = now + kWarnAfter;
  said_.clear();
}

LeaderSearch::Next LeaderSearch::failed(TimePoint now, const Failure& failure, bool goes_on) {
  const bool refused = failure.refused && !config_.elects;
  const bool over = now > (refused ? refused_until_ : give_up_at_);
  if (over && goes_on && !config_.elects) return Next::not_restarted;
  if (failure.final || over) return Next::cannot_join;
  if (now < warn_at_ || failure.why == said_) return Next::wait;
  said_ = failure.why;
  warn_at_ = now + kWarnAfter;
  return Next::warn;
}

}  // namespace dlaunch
