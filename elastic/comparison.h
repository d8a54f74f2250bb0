// Is one of several members lastingly slower than the others? Robust statistics: medians, and the
// median absolute deviation. Pure.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "elastic/step_times.h"

namespace dlaunch {

using Values = std::vector<double>;

inline constexpr double kLeastCost = 0.05;  // of a slow member, as a share of the step

double median(Values values);

struct Distribution {
  double median = 0, sigma = 0;
};
Distribution distribution_of(Values values);

// Gives, for each of its values, the median of the others.
class EachLeftOut {
 public:
  explicit EachLeftOut(Values values);
  // value: one of them. There must be another one.
  double median_without(double value) const;
  Distribution distribution_without(double value);

 private:
  Values sorted_;
  // The distances from the medians that there are without one value: three at most.
  std::map<double, Values> sorted_distances_;
};

// A member's values in the window against the others' medians.
struct Comparison {
  double own = 0, others = 0;  // medians
  double noise = 0;            // of either, as one sigma
  double persistence = 0;      // share of its values well above the others

  Comparison(const Values& values, const Distribution& of_others, double ratio);
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
