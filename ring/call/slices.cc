#include "ring/call/slices.h"

#include <algorithm>

namespace dlaunch {

std::vector<Part> slices_of(std::size_t count, int ranks, std::size_t unit) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t even = (count + n - 1) / n;
  const std::size_t length = (even + unit - 1) / unit * unit;
  std::vector<Part> slices;
  for (std::size_t r = 0; r < n; ++r) {
    const std::size_t first = std::min(r * length, count);
    slices.push_back({first, std::min(length, count - first)});
  }
  return slices;
}

}  // namespace dlaunch
