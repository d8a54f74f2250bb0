#include "elastic/comparison.h"

#include <cmath>
#include <utility>

namespace dlaunch {
namespace {

constexpr double kSigmas = 4;
constexpr double kMadToSigma = 1.4826;   // of a normal distribution
constexpr double kMedianError = 1.2533;  // of a median, in errors of a mean
constexpr double kPersistence = 0.8;     // share of steps

Values distances(Values values, double center) {
  for (double& value : values) value = std::fabs(value - center);
  return values;
}

double sigma(Values values, double center) {
  return kMadToSigma * median(distances(std::move(values), center));
}

Values sorted(Values values) {
  std::ranges::sort(values);
  return values;
}

// The median without that value.
double median_of_others(const Values& sorted, double value) {
  const auto left_out = std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin();
  const auto other = [&](std::ptrdiff_t i) {
    return sorted[static_cast<std::size_t>(i < left_out ? i : i + 1)];
  };
  const auto others = static_cast<std::ptrdiff_t>(sorted.size()) - 1;
  if (others % 2 == 1) return other(others / 2);
  return (other(others / 2) + other(others / 2 - 1)) / 2;
}

}  // namespace

double median(Values values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Distribution distribution_of(Values values) {
  const double center = median(values);
  return {center, sigma(std::move(values), center)};
}

EachLeftOut::EachLeftOut(Values values) : sorted_(sorted(std::move(values))) {}

double EachLeftOut::median_without(double value) const { return median_of_others(sorted_, value); }

Distribution EachLeftOut::distribution_without(double value) {
  const double center = median_without(value);
  auto at = sorted_distances_.find(center);
  if (at == sorted_distances_.end()) {
    at = sorted_distances_.emplace(center, sorted(distances(sorted_, center))).first;
  }
  return {center, kMadToSigma * median_of_others(at->second, std::fabs(value - center))};
}

Comparison::Comparison(const Values& values, const Distribution& of_others, double ratio)
    : own(median(values)), others(of_others.median) {
  const double error =
      kMedianError * sigma(values, own) / std::sqrt(static_cast<double>(values.size()));
  noise = std::max(of_others.sigma, error);
  const double half_way = others * (1 + (ratio - 1) / 2);
  const auto above = std::ranges::count_if(values, [&](double value) { return value > half_way; });
  persistence = static_cast<double>(above) / static_cast<double>(values.size());
}
bool Comparison::shows(double excess, double ratio) const {
  return excess >= (ratio - 1) * others && excess > kSigmas * noise && persistence >= kPersistence;
}

}  // namespace dlaunch
