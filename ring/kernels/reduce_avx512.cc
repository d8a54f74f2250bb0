#include "ring/kernels/codec_kernels.h"

namespace dlaunch {

Kernels kernels_avx512() {
  return {reduce_any, scale_any, copy, stream, pass, pass_streaming, kCodecKernels};
}

}  // namespace dlaunch
