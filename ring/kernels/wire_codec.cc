#include "ring/kernels/wire_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "ring/kernels/reduce_isa.h"

namespace dlaunch {
static_assert(kCodecUnit % kCodecBlock == 0 && kCodecUnit % kInt4Block == 0);
namespace {

// The bytes of the scales of blocks of so many elements.
constexpr std::size_t scale_bytes(std::size_t count, std::size_t block) {
  return sizeof(float) * ((count + block - 1) / block);
}

// -- topk, in portable code: most of its time goes into the choice.

constexpr std::size_t kTopBlock = 256, kTop = 16;
static_assert(kCodecUnit % kTopBlock == 0);
constexpr std::size_t kTopEntry = 3;  // the place, and the upper half of the float

void encode_top_block(const float* block, std::size_t count, std::byte* to) {
  // The size, and behind it the place, so that no two are equal.
  std::array<std::uint64_t, kTopBlock> keys;
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = std::uint64_t{std::bit_cast<std::uint32_t>(block[i]) & 0x7fffffffU} << 8 |
              (kTopBlock - 1 - i);
  }
  const std::size_t kept = std::min(kTop, count);
  auto* const end = keys.data() + kept;
  std::nth_element(keys.data(), end - 1, keys.data() + count, std::greater<>());
  std::sort(keys.data(), end, [](auto a, auto b) { return (a & 0xff) > (b & 0xff); });
  for (const auto* key = keys.data(); key != end; ++key, to += kTopEntry) {
    const std::size_t place = kTopBlock - 1 - (*key & 0xff);
    to[0] = static_cast<std::byte>(place);
    encode_floats(WireCodec::bf16, block + place, 1, to + 1);
  }
}

void encode_top(const float* from, std::size_t count, std::byte* to) {
  for (std::size_t at = 0; at < count; at += kTopBlock, to += kTop * kTopEntry) {
    encode_top_block(from + at, std::min(kTopBlock, count - at), to);
  }
}

void decode_top(const std::byte* from, std::size_t count, float* to) {
  std::fill_n(to, count, 0.0F);
  for (std::size_t at = 0; at < count; at += kTopBlock) {
    const std::size_t some = std::min(kTopBlock, count - at);
    for (std::size_t i = 0; i < std::min(kTop, some); ++i, from += kTopEntry) {
      const auto place = std::to_integer<std::size_t>(from[0]);
      if (place < some) decode_floats(WireCodec::bf16, from + 1, 1, to + at + place);
    }
  }
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
    case WireCodec::topk:
      return kTopEntry * (count / kTopBlock * kTop + std::min(kTop, count % kTopBlock));
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
  if (codec == WireCodec::topk) return encode_top(from, count, to);
  kernel_of(codec).encode(from, count, reinterpret_cast<unsigned char*>(to));
}

void decode_floats(WireCodec codec, const std::byte* from, std::size_t count, float* to) {
  if (codec == WireCodec::none) {
    if (count > 0) std::memcpy(to, from, sizeof(float) * count);
    return;
  }
  if (codec == WireCodec::topk) return decode_top(from, count, to);
  kernel_of(codec).decode(reinterpret_cast<const unsigned char*>(from), count, to);
}

}  // namespace dlaunch
