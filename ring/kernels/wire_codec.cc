#include "ring/kernels/wire_codec.h"

#include "ring/kernels/reduce_isa.h"

namespace dlaunch {
std::size_t encoded_bytes(WireCodec codec, std::size_t count) {
  switch (codec) {
    case WireCodec::bf16:
      return 2 * count;
    case WireCodec::int8:
      return count + sizeof(float) * ((count + kCodecBlock - 1) / kCodecBlock);
    case WireCodec::none:
      break;
  }
  return sizeof(float) * count;
}

void encode_floats(WireCodec codec, const float* from, std::size_t count, std::byte* to) {
  const auto& use = kernels().codec;
  const auto encode = codec == WireCodec::bf16 ? use.encode_bf16 : use.encode_int8;
  encode(from, count, reinterpret_cast<unsigned char*>(to));
}

void decode_floats(WireCodec codec, const std::byte* from, std::size_t count, float* to) {
  const auto& use = kernels().codec;
  const auto decode = codec == WireCodec::bf16 ? use.decode_bf16 : use.decode_int8;
  decode(reinterpret_cast<const unsigned char*>(from), count, to);
}

}  // namespace dlaunch
