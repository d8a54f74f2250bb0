// Time: monotonic only. Pure cores take a TimePoint as an argument; only shells call steady_now().
// Durations may cross a wire or a process boundary, time points may not (one exception: all
// processes of one host share CLOCK_MONOTONIC, which is what steady_clock reads).
#pragma once

#include <chrono>
#include <cstdint>

namespace dlaunch {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

inline double to_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
inline TimePoint steady_now() { return std::chrono::steady_clock::now(); }

// A deadline that never comes.
inline constexpr TimePoint kNever = TimePoint::max();

// now + d without overflow; a negative or huge d means never.
inline TimePoint deadline_after(TimePoint now, Duration d) {
  return d < Duration::zero() || d > kNever - now ? kNever : now + d;
}

// `pause`, a quarter more or less, by a random number: processes that wait for the same event must
// not all return at once.
inline Duration jittered(Duration pause, std::uint64_t random) {
  return pause * static_cast<long>(384 + random % 257) / 512;
}

// Milliseconds until the deadline for poll(2)/epoll_wait(2): -1 for never, 0 if it has passed,
// rounded up so that a waiter does not spin through the last fraction of a millisecond.
inline int poll_timeout_ms(TimePoint now, TimePoint deadline) {
  if (deadline == kNever) return -1;
  if (deadline <= now) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return ms > 60'000 ? 60'000 : static_cast<int>(ms);
}

}  // namespace dlaunch
