#include "ring/reduce_kernels.h"

namespace dlaunch {

Kernels kernels_avx512() { return {reduce_any, stream, fetch}; }

}  // namespace dlaunch
