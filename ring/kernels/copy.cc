#include "ring/kernels/copy.h"

#include "ring/kernels/reduce_isa.h"

namespace dlaunch {

void copy_cached(void* out, const void* in, std::size_t bytes) { kernels().copy(out, in, bytes); }

void copy_streaming(void* out, const void* in, std::size_t bytes) {
  kernels().stream(out, in, bytes);
}

void copy_through(void* out, void* through, const void* in, std::size_t bytes) {
  kernels().pass(out, through, in, bytes);
}

void copy_through_streaming(void* out, void* through, const void* in, std::size_t bytes) {
  kernels().pass_streaming(out, through, in, bytes);
}

}  // namespace dlaunch
