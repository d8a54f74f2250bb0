#include "ring/kernels/codec_kernels.h"

namespace dlaunch {

Kernels kernels_avx2() { return {reduce_any, stream, kCodecKernels}; }

}  // namespace dlaunch
