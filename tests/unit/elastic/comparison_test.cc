// Medians of all values but one.
#include "elastic/comparison.h"

#include <random>

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("comparison: the median and the distribution without a value are those of the rest") {
  std::mt19937 random(1);
  for (std::size_t size = 2; size < 12; ++size) {
    CAPTURE(size);
    Values values;
    for (std::size_t i = 0; i < size; ++i) values.push_back(static_cast<double>(random() % 8));
    EachLeftOut left_out(values);
    for (std::size_t i = 0; i < size; ++i) {
      Values rest = values;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
      CHECK(left_out.median_without(values[i]) == median(rest));
      CHECK(left_out.distribution_without(values[i]).median == distribution_of(rest).median);
      CHECK(left_out.distribution_without(values[i]).sigma == distribution_of(rest).sigma);
    }
  }
}
