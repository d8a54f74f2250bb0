// How the kernels of each instruction set are called. Internal to the kernels.
#pragma once

#include <stddef.h>

#include "dlaunch/ring.h"

namespace dlaunch {

struct ReduceArgs {
  const void* const* in;
  size_t operands;
  void* out;
  void* also = nullptr;  // null, or the second place for the result of two operands
  size_t count;
  dl_dtype dtype;
  dl_op op;
  int divisor;  // 0: none
  bool streaming = false;
  // Null, or, with `also`, the copy beside the reduction; see Passing.
  void* pass_out = nullptr;
  void* pass_through = nullptr;
  const void* pass_in = nullptr;
};

// For the wire codecs: blocks of so many elements share a scale.
constexpr size_t kCodecBlock = 256;
constexpr size_t kInt4Block = 128;
struct CodecKernel {
  void (*encode)(const float* from, size_t count, unsigned char* to);
  void (*decode)(const unsigned char* from, size_t count, float* to);
};
struct CodecKernels {
  CodecKernel bf16, int8, fp8, int4;
};

struct Kernels {
  void (*reduce)(const ReduceArgs& args);
  void (*scale)(void* out, const void* in, size_t count, dl_dtype dtype, double factor);
  void (*copy)(void* out, const void* in, size_t bytes);
  void (*stream)(void* out, const void* in, size_t bytes);
  void (*pass)(void* out, void* through, const void* in, size_t bytes);
  void (*pass_streaming)(void* out, void* through, const void* in, size_t bytes);
  CodecKernels codec;
};

// The kernels for this machine, or of use_isa().
const Kernels& kernels();
Kernels kernels_avx2();
Kernels kernels_avx512();

}  // namespace dlaunch
