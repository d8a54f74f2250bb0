// Is one of several members lastingly slower than the others? Robust statistics: medians, and the
// median absolute deviation. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "elastic/step_times.h"

namespace dlaunch {

using Values = std::vector<double>;

inline constexpr double kLeastCost = 0.05;  // of a slow member, as a share of the step

double median(Values values);
Values without(Values values, std::size_t i);

// A member's values in the window against the others' medians.
struct Comparison {
  double own = 0, others = 0;  // medians
  double noise = 0;            // of either, as one sigma
  double persistence = 0;      // share of its values well above the others

  Comparison(const Values& values, const Values& medians, std::size_t i, double ratio);
  double ratio() const { return own / std::max(others, 1e-12); }
  // Whether `excess` over the others, in the unit of the values, is more than noise.
  bool shows(double excess, double ratio) const;
};

// get(step) for all steps of the window.
template <class Get>
Values column(const std::vector<StepTimes>& window, Get get) {
  Values values;
  for (const StepTimes& step : window) values.push_back(get(step));
  return values;
}

}  // namespace dlaunch
