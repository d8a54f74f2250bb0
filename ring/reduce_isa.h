// How reduce.cc calls the kernels of each instruction set. Internal to the kernels.
#pragma once

#include <stddef.h>

#include "dlaunch/ring.h"

namespace dlaunch {

struct ReduceArgs {
  const void* const* in;
  size_t operands;
  void* out;
  void* also;  // null, or of two operands the result's second place
  size_t count;
  dl_dtype dtype;
  dl_op op;
  int divisor;  // 0: none
  bool streaming;
};

struct Kernels {
  void (*reduce)(const ReduceArgs& args);
  void (*stream)(void* out, const void* in, size_t bytes);
  void (*fetch)(void* out, const void* in, size_t bytes);
};

Kernels kernels_avx2();
Kernels kernels_avx512();

}  // namespace dlaunch
