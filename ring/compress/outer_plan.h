// What an outer optimizer does in which step: see <dlaunch/outer.h>. Pure.
#pragma once

#include <cstdint>

namespace dlaunch {

struct OuterPlan {
  std::uint64_t inner_steps = 1;
  std::uint64_t fragments = 1;  // 1 to inner_steps
  std::uint64_t delay = 0;      // less than inner_steps
};

// Fragments in a step; -1: none. First the one that is applied, unless both are the same.
struct OuterDue {
  int send = -1;
  int apply = -1;
  bool operator==(const OuterDue&) const = default;
};

// The fragment that is sent in this step, from 1; -1: none. The fragments have their turns at equal
// distances, and the last one after each inner_steps steps.
constexpr int fragment_at(const OuterPlan& plan, std::uint64_t step) {
  if (step == 0) return -1;
  for (std::uint64_t f = 0; f < plan.fragments; ++f) {
    const std::uint64_t turn = plan.inner_steps * (f + 1) / plan.fragments;
    if (step % plan.inner_steps == turn % plan.inner_steps) return static_cast<int>(f);
  }
  return -1;
}

// finished: the last step after which all fragments were averaged out of turn; what was sent until
// then has been applied.
constexpr OuterDue due_at(const OuterPlan& plan, std::uint64_t step, std::uint64_t finished) {
  const bool sent = step > plan.delay && step - plan.delay > finished;
  return {.send = fragment_at(plan, step),
          .apply = sent ? fragment_at(plan, step - plan.delay) : -1};
}

// Whether the average of the fragment was sent in one of the last steps up to `steps`, and not yet
// applied.
constexpr bool is_awaited(const OuterPlan& plan, int fragment, std::uint64_t steps,
                          std::uint64_t finished) {
  for (std::uint64_t step = steps + 1; step <= steps + plan.delay; ++step) {
    if (due_at(plan, step, finished).apply == fragment) return true;
  }
  return false;
}

// Whether no step came after the last average of the fragment, or after the start.
constexpr bool is_fresh(const OuterPlan& plan, int fragment, std::uint64_t steps,
                        std::uint64_t finished) {
  return steps == finished || (plan.delay == 0 && fragment_at(plan, steps) == fragment);
}

}  // namespace dlaunch
