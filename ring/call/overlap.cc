#include "ring/call/overlap.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace dlaunch {

std::string overlap_in(const TensorList& list, std::size_t element_bytes) {
  const auto range = [&](const void* at, std::size_t i) {
    const std::size_t before = i == 0 ? 0 : list.ends[i - 1];
    return MemoryRange{static_cast<const char*>(at), (list.ends[i] - before) * element_bytes};
  };
  const auto out = [&](std::size_t i) { return range(list.out[i], i); };
  const auto name = [&](std::size_t i) { return list.numbers[i]; };
  std::vector<std::size_t> sorted(list.ends.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::sort(sorted.begin(), sorted.end(),
            [&](std::size_t a, std::size_t b) { return std::less<>()(list.out[a], list.out[b]); });
  for (std::size_t k = 1; k < sorted.size(); ++k) {
    const auto [i, j] = std::minmax(sorted[k - 1], sorted[k]);
    if (!out(i).overlaps(out(j))) continue;
    return fmt::format("the outputs of tensors {} and {} overlap", name(i), name(j));
  }
  // Disjoint outputs end in the order in which they begin.
  for (std::size_t i = 0; i < list.ends.size(); ++i) {
    if (list.in[i] == list.out[i]) continue;
    const MemoryRange in = range(list.in[i], i);
    const auto near = std::partition_point(sorted.begin(), sorted.end(), [&](std::size_t j) {
      return !std::less<>()(in.begin, out(j).end());
    });
    if (near == sorted.end() || !in.overlaps(out(*near))) continue;
    if (*near == i) {
      return fmt::format("in and out of tensor {} overlap without being in place", name(i));
    }
    return fmt::format("the input of tensor {} and the output of tensor {} overlap", name(i),
                       name(*near));
  }
  return "";
}

}  // namespace dlaunch
