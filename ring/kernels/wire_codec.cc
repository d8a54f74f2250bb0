#include "ring/kernels/wire_codec.h"

#include <cstring>

#include "ring/kernels/reduce_isa.h"

namespace dlaunch {
static_assert(kCodecUnit % kCodecBlock == 0 && kCodecUnit % kInt4Block == 0);
namespace {

// The bytes of the scales of blocks of so many elements.
constexpr std::size_t scale_bytes(std::size_t count, std::size_t block) {
  return sizeof(float) * ((count + block - 1) / block);
}

const CodecKernel& kernel_of(WireCodec codec) {
  const CodecKernels& use = kernels().codec;
  switch (codec) {
    case WireCodec::bf16:
      return use.bf16;
    case WireCodec::fp8:
      return use.fp8;
    case WireCodec::int4:
      return use.int4;
    default:
      return use.int8;
  }
}

}  // namespace

std::size_t encoded_bytes(WireCodec codec, std::size_t count) {
  switch (codec) {
    case WireCodec::bf16:
      return 2 * count;
    case WireCodec::int8:
    case WireCodec::fp8:
      return count + scale_bytes(count, kCodecBlock);
    case WireCodec::int4:
      return (count + 1) / 2 + scale_bytes(count, kInt4Block);
    case WireCodec::none:
      break;
  }
  return sizeof(float) * count;
}

void encode_floats(WireCodec codec, const float* from, std::size_t count, std::byte* to) {
  if (codec == WireCodec::none) {
    if (count > 0) std::memcpy(to, from, sizeof(float) * count);
    return;
  }
  kernel_of(codec).encode(from, count, reinterpret_cast<unsigned char*>(to));
}

void decode_floats(WireCodec codec, const std::byte* from, std::size_t count, float* to) {
  if (codec == WireCodec::none) {
    if (count > 0) std::memcpy(to, from, sizeof(float) * count);
    return;
  }
  kernel_of(codec).decode(reinterpret_cast<const unsigned char*>(from), count, to);
}

}  // namespace dlaunch
