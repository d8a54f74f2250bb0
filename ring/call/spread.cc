#include "ring/call/spread.h"

#include <sched.h>

#include <algorithm>

namespace dlaunch {

int current_core() { return ::sched_getcpu(); }

void offer_core() { ::sched_yield(); }

bool Spread::should_move(TimePoint now, int own, int core, const void* whom, bool goes_first) {
  if (core < 0 || core != own) {
    if (whom == with_) with_ = nullptr;
    return false;
  }
  if (with_ == nullptr || now - looked_at_ > kOldLook) shared_since_ = now;
  with_ = whom;
  looked_at_ = now;
  if (!goes_first && now - shared_since_ < kOthersTurn) return false;
  if (now - moved_at_ < pause_) return false;
  pause_ = now - moved_at_ > 8 * pause_ ? kFirstPause : std::min(2 * pause_, kLongestPause);
  moved_at_ = now;
  with_ = nullptr;
  return true;
}

bool Spread::move_away_from(TimePoint now, int core, const void* whom, bool goes_first) {
  if (!should_move(now, current_core(), core, whom, goes_first)) return false;
  // Of this thread alone. Forbidding the core for a moment makes the kernel find another one now.
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2)
    return false;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(core), &others);
  if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof others, &others) != 0) return false;
  ::sched_setaffinity(0, sizeof allowed, &allowed);
  return true;
}

}  // namespace dlaunch
