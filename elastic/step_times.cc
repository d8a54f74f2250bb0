#include "elastic/step_times.h"

#include <algorithm>
#include <cmath>

#include "elastic/comparison.h"

namespace dlaunch {

bool usable(const StepTimes& step, std::size_t ranks) {
  if (step.steps < 1 || step.ranks.size() != ranks) return false;
  const auto time = [](double value) { return std::isfinite(value) && value >= 0; };
  const bool ranks_fine = std::ranges::all_of(step.ranks, [&](const RankTimes& r) {
    return std::isfinite(r.late) && time(r.in_op) && time(r.input) && time(r.step) && r.step > 0;
  });
  const bool links_fine = std::ranges::all_of(step.links, [&](const LinkTimes& l) {
    return time(l.seconds) && time(l.bytes) && l.bytes > 0;
  });
  return ranks_fine && links_fine;
}

double step_of(const std::vector<StepTimes>& window) {
  return median(column(window, [](const StepTimes& s) {
    Values steps;
    for (const RankTimes& rank : s.ranks) steps.push_back(rank.step);
    return median(std::move(steps));
  }));
}

}  // namespace dlaunch
