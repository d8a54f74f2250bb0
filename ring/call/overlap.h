// Finds overlapping buffers of one call, and overlapping tensors of a list. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "ring/call/plane.h"

namespace dlaunch {

struct MemoryRange {
  const char* begin;
  std::size_t bytes;
  const char* end() const { return begin + bytes; }
  bool overlaps(const MemoryRange& other) const {
    return bytes > 0 && other.bytes > 0 && begin < other.end() && other.begin < end();
  }
};

// The error of a list to be reduced, as a sentence; "": none. A tensor may be in place, and inputs
// may overlap each other.
std::string overlap_in(const TensorList& list, std::size_t element_bytes);

}  // namespace dlaunch
