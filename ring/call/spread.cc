#include "ring/call/spread.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

namespace dlaunch {

int current_core() { return ::sched_getcpu(); }

void offer_core() { ::sched_yield(); }

int emptier_core(int rank, int own, std::span<const int> others, std::span<const int> allowed) {
  const auto neighbours = [&](int core) { return std::count(others.begin(), others.end(), core); };
  auto fewest = neighbours(own);
  std::vector<int> best;
  for (const int core : allowed) {
    const auto here = neighbours(core);
    if (core == own || here > fewest || here == neighbours(own)) continue;
    if (here < fewest) best.clear();
    fewest = here;
    best.push_back(core);
  }
  return best.empty() ? -1 : best[static_cast<std::size_t>(rank) % best.size()];
}

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

bool Spread::move_away_from(TimePoint now, int core, const void* whom, bool goes_first,
                            const OthersCores& others) {
  if (!should_move(now, current_core(), core, whom, goes_first)) return false;
  // The cores that this thread may use.
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  std::vector<int> cores;
  for (int c = 0; c < CPU_SETSIZE; ++c) {
    if (CPU_ISSET(static_cast<std::size_t>(c), &allowed)) cores.push_back(c);
  }
  const int there = emptier_core(rank_, core, others(), cores);
  if (there < 0) return false;
  // Allowing only that core for a moment makes the kernel move the thread now. If only this core
  // were forbidden, the kernel would take any other one, idle or not.
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<std::size_t>(there), &only);
  if (::sched_setaffinity(0, sizeof only, &only) != 0) return false;
  if (::sched_setaffinity(0, sizeof allowed, &allowed) == 0) return true;
  // The allowed cores have changed meanwhile: allow all that the system has, rather than one.
  std::memset(&allowed, 0xff, sizeof allowed);
  ::sched_setaffinity(0, sizeof allowed, &allowed);
  return true;
}

}  // namespace dlaunch
