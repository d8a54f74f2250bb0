#include "elastic/comparison.h"

#include <cmath>
#include <utility>

namespace dlaunch {
namespace {

constexpr double kSigmas = 4;
constexpr double kMadToSigma = 1.4826;   // of a normal distribution
constexpr double kMedianError = 1.2533;  // of a median, in errors of a mean
constexpr double kPersistence = 0.8;     // share of steps

double sigma(const Values& values, double center) {
  Values distances;
  for (const double value : values) distances.push_back(std::fabs(value - center));
  return kMadToSigma * median(std::move(distances));
}

}  // namespace

double median(Values values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Values without(Values values, std::size_t i) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(i));
  return values;
}

Comparison::Comparison(const Values& values, const Values& medians, std::size_t i, double ratio)
    : own(medians[i]) {
  const Values rest = without(medians, i);
  others = median(rest);
  const double error =
      kMedianError * sigma(values, own) / std::sqrt(static_cast<double>(values.size()));
  noise = std::max(sigma(rest, others), error);
  const double half_way = others * (1 + (ratio - 1) / 2);
  const auto above =
      std::count_if(values.begin(), values.end(), [&](double value) { return value > half_way; });
  persistence = static_cast<double>(above) / static_cast<double>(values.size());
}
bool Comparison::shows(double excess, double ratio) const {
  return excess >= (ratio - 1) * others && excess > kSigmas * noise && persistence >= kPersistence;
}

}  // namespace dlaunch
