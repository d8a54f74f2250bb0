// What the composed calls share (ring/composed_calls.cc): each rank reduces a slice of the elements
// for all, or in small calls every rank reduces everything. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ring/call/plane.h"

namespace dlaunch {

// Whether every rank gets `parts` parts of so many bytes and reduces them: two steps with slices
// would cost more. The product must not overflow.
constexpr bool goes_to_all(std::size_t bytes, std::size_t parts) {
  constexpr std::size_t kToAllBytes = 1 << 13;
  return bytes * parts <= kToAllBytes;
}

// The elements that each rank reduces, end to end. The lengths of slices, but for the last ones,
// are multiples of `unit`: a cache line of the smallest elements.
std::vector<Part> slices_of(std::size_t count, int ranks, std::size_t unit = 64);

// The memory gets room for so many bytes, and keeps it.
inline std::byte* room_in(std::vector<std::byte>& memory, std::size_t bytes) {
  memory.resize(std::max(memory.size(), bytes));
  return memory.data();
}

// What a core reduces at a time, so that it stays in a cache.
inline constexpr std::size_t kCacheBlockBytes = 1 << 16;

}  // namespace dlaunch
