#include "ring/wire_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace dlaunch {
namespace {

constexpr std::size_t kBlock = 256;
constexpr float kSteps = 127.0F;
constexpr float kNoFraction = 12582912.0F;  // 3 * 2^22

std::uint16_t to_bfloat(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  const std::uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  // Rounding must not carry a NaN's bits into an infinity.
  return static_cast<std::uint16_t>(nan ? bits >> 16 | 0x40 : rounded >> 16);
}

float from_bfloat(std::uint16_t half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// 0 for a block of zeros, NaN where something is not finite. Sizes compare as their bits do, which
// vectorises where a maximum of floats would not.
float scale_of(const float* block, std::size_t count) {
  constexpr std::int32_t kInfinite = 0x7f800000;
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t bits;
    std::memcpy(&bits, block + i, sizeof bits);
    largest = std::max(largest, bits & 0x7fffffff);
  }
  if (largest >= kInfinite) return std::numeric_limits<float>::quiet_NaN();
  float size;
  std::memcpy(&size, &largest, sizeof size);
  return size / kSteps;
}

void encode_block(const float* block, std::size_t count, std::byte* to) {
  const float scale = scale_of(block, count);
  std::memcpy(to, &scale, sizeof scale);
  auto* const values = reinterpret_cast<std::int8_t*>(to + sizeof scale);
  // A scale so small that its reciprocal overflows belongs to a block that is as good as zero.
  const float factor = scale > 0 ? 1.0F / scale : 0.0F;
  if (!std::isfinite(factor) || factor <= 0) {
    std::memset(values, 0, count);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    // Adding what leaves no room for a fraction rounds to nearest even; the lowest bits are then
    // the number. Nothing exceeds kSteps by more than rounding takes away.
    const float shifted = block[i] * factor + kNoFraction;
    std::int32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    values[i] = static_cast<std::int8_t>(bits);
  }
}

void decode_block(const std::byte* from, std::size_t count, float* block) {
  float scale;
  std::memcpy(&scale, from, sizeof scale);
  const auto* const values = reinterpret_cast<const std::int8_t*>(from + sizeof scale);
  for (std::size_t i = 0; i < count; ++i) block[i] = static_cast<float>(values[i]) * scale;
}

}  // namespace

std::optional<WireCodec> wire_codec_named(std::string_view name) {
  if (name == "none") return WireCodec::none;
  if (name == "bf16") return WireCodec::bf16;
  if (name == "int8") return WireCodec::int8;
  return std::nullopt;
}

std::size_t encoded_bytes(WireCodec codec, std::size_t count) {
  switch (codec) {
    case WireCodec::bf16:
      return 2 * count;
    case WireCodec::int8:
      return count + sizeof(float) * ((count + kBlock - 1) / kBlock);
    case WireCodec::none:
      break;
  }
  return sizeof(float) * count;
}

void encode_floats(WireCodec codec, const float* from, std::size_t count, std::byte* to) {
  if (codec == WireCodec::bf16) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t half = to_bfloat(from[i]);
      std::memcpy(to + 2 * i, &half, sizeof half);
    }
    return;
  }
  for (std::size_t at = 0; at < count; at += kBlock, to += sizeof(float) + kBlock) {
    encode_block(from + at, std::min(kBlock, count - at), to);
  }
}

void decode_floats(WireCodec codec, const std::byte* from, std::size_t count, float* to) {
  if (codec == WireCodec::bf16) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t half;
      std::memcpy(&half, from + 2 * i, sizeof half);
      to[i] = from_bfloat(half);
    }
    return;
  }
  for (std::size_t at = 0; at < count; at += kBlock, from += sizeof(float) + kBlock) {
    decode_block(from, std::min(kBlock, count - at), to + at);
  }
}

}  // namespace dlaunch
