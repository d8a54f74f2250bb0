#include "ring/call/slices.h"

#include <algorithm>

namespace dlaunch {

// The lengths of slices are multiples of a cache line of the smallest elements.
std::vector<Part> slices_of(std::size_t count, int ranks) {
  constexpr std::size_t kLine = 64;
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t even = (count + n - 1) / n;
  const std::size_t length = (even + kLine - 1) / kLine * kLine;
  std::vector<Part> slices;
  for (std::size_t r = 0; r < n; ++r) {
    const std::size_t first = std::min(r * length, count);
    slices.push_back({first, std::min(length, count - first)});
  }
  return slices;
}

}  // namespace dlaunch
