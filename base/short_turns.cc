#include "base/short_turns.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

namespace dlaunch {
namespace {

constexpr std::chrono::nanoseconds kTurn = std::chrono::microseconds(100);  // the shortest possible
constexpr std::uint64_t kResetOnFork = 1;

// sched_attr of linux/sched/types.h, which conflicts with the C library's sched.h.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;
};

}  // namespace

void ask_for_short_turns() {
  SchedulingAttributes attributes;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  // Reset on fork would also drop a raised priority, which must stay.
  if (attributes.policy != SCHED_OTHER || attributes.nice < 0) return;
  attributes.flags |= kResetOnFork;
  attributes.runtime = static_cast<std::uint64_t>(kTurn.count());
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace dlaunch
