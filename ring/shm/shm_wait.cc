#include "ring/shm/shm_wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include <climits>

namespace dlaunch {
namespace {

// A lost wake-up or a dead control thread costs at most this time.
constexpr Duration kRecheck = std::chrono::milliseconds(50);

// Not a private futex, because processes share the word.
long futex(std::atomic<std::uint32_t>& word, int op, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), op, value, timeout, nullptr,
                   0);
}

}  // namespace

void ring_bell_always(Bell& bell) {
  bell.rung.fetch_add(1, std::memory_order_seq_cst);
  futex(bell.rung, FUTEX_WAKE, INT_MAX, nullptr);
}

void ring_bell(Bell& bell) {
  // Orders the caller's progress before the look at the sleepers; the waiter does the reverse.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (bell.sleepers.load(std::memory_order_relaxed) > 0) ring_bell_always(bell);
}

void Waiter::pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

void Waiter::sleep(Bell& bell, std::uint32_t seen, TimePoint deadline) {
  const auto left = std::clamp<Duration>(deadline - steady_now(), Duration(0), kRecheck);
  const timespec timeout{.tv_sec = 0, .tv_nsec = left.count()};
  futex(bell.rung, FUTEX_WAIT, seen, &timeout);
}

}  // namespace dlaunch
