// The loops of the wire codecs (ring/kernels/wire_codec.h), compiled once per instruction set by
// the same rules as those of reduce_kernels.h; include it after that file.
#pragma once

#include "ring/kernels/reduce_kernels.h"

namespace dlaunch {
namespace {

constexpr float kNoFraction = 12582912.0F;  // 3 * 2^22
constexpr int32_t kInfinite = 0x7f800000;

void encode_bfloat(const float* from, size_t count, unsigned char* to) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = Bfloat::narrow(from[i]);
    memcpy(to + 2 * i, &half, sizeof half);
  }
}

void decode_bfloat(const unsigned char* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    memcpy(&half, from + 2 * i, sizeof half);
    to[i] = Bfloat::widen(half);
  }
}

// How the codecs with a scale for each block write a value between -kLargest and kLargest.
struct Int8Steps {
  static constexpr size_t kBlock = kCodecBlock;
  static constexpr float kLargest = 127.0F;
  static constexpr size_t bytes(size_t count) { return count; }
  // Adding a number that leaves no room for a fraction rounds to nearest even; the lowest bits are
  // then the number. No value exceeds kLargest by more than rounding takes away.
  static uint32_t step(float value) { return bits_of(value + kNoFraction); }
  static void encode(const float* block, size_t count, float factor, unsigned char* to) {
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<unsigned char>(step(block[i] * factor));
  }
  static void decode(const unsigned char* from, size_t count, float scale, float* block) {
    const auto* const values = reinterpret_cast<const int8_t*>(from);
    for (size_t i = 0; i < count; ++i) block[i] = static_cast<float>(values[i]) * scale;
  }
};

// Two values in a byte, the first one in its lower half.
struct Int4Steps {
  static constexpr size_t kBlock = kInt4Block;
  static constexpr float kLargest = 7.0F;
  static constexpr size_t bytes(size_t count) { return (count + 1) / 2; }
  static void encode(const float* block, size_t count, float factor, unsigned char* to) {
    for (size_t i = 0; i < count / 2; ++i) {
      const uint32_t low = Int8Steps::step(block[2 * i] * factor) & 0xf;
      const uint32_t high = Int8Steps::step(block[2 * i + 1] * factor) & 0xf;
      to[i] = static_cast<unsigned char>(low | high << 4);
    }
    if (count % 2 != 0) {
      to[count / 2] = static_cast<unsigned char>(Int8Steps::step(block[count - 1] * factor) & 0xf);
    }
  }
  static float value(uint32_t half) {
    return static_cast<float>(static_cast<int32_t>(half ^ 8) - 8);
  }
  static void decode(const unsigned char* from, size_t count, float scale, float* block) {
    for (size_t i = 0; i < count / 2; ++i) {
      block[2 * i] = value(from[i] & 0xfU) * scale;
      block[2 * i + 1] = value(from[i] >> 4) * scale;
    }
    if (count % 2 != 0) block[count - 1] = value(from[count / 2] & 0xfU) * scale;
  }
};

struct Fp8Steps {
  static constexpr size_t kBlock = kCodecBlock;
  static constexpr float kLargest = 448.0F;
  static constexpr size_t bytes(size_t count) { return count; }
  static void encode(const float* block, size_t count, float factor, unsigned char* to) {
    for (size_t i = 0; i < count; ++i) to[i] = E4m3::narrow(block[i] * factor);
  }
  static void decode(const unsigned char* from, size_t count, float scale, float* block) {
    for (size_t i = 0; i < count; ++i) block[i] = E4m3::widen(from[i]) * scale;
  }
};

// 0 for a block of zeros, NaN if a value is not finite. Comparing bits orders sizes, and
// vectorises; a maximum of floats would not.
float scale_of(const float* block, size_t count, float steps) {
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<int32_t>(bits_of(block[i]) & 0x7fffffff);
    largest = bits > largest ? bits : largest;
  }
  if (largest >= kInfinite) return float_of(0x7fc00000);
  return float_of(static_cast<uint32_t>(largest)) / steps;
}

template <class Steps>
void encode_block(const float* block, size_t count, unsigned char* to) {
  const float scale = scale_of(block, count, Steps::kLargest);
  memcpy(to, &scale, sizeof scale);
  unsigned char* const values = to + sizeof scale;
  // A scale so small that its reciprocal overflows: the block is as good as zero.
  const float factor = scale > 0 ? 1.0F / scale : 0.0F;
  if (!(factor > 0) || static_cast<int32_t>(bits_of(factor)) >= kInfinite) {
    memset(values, 0, Steps::bytes(count));
    return;
  }
  Steps::encode(block, count, factor, values);
}

template <class Steps>
void encode_blocks(const float* from, size_t count, unsigned char* to) {
  constexpr size_t kBlock = Steps::kBlock;
  for (size_t at = 0; at < count; at += kBlock, to += sizeof(float) + Steps::bytes(kBlock)) {
    encode_block<Steps>(from + at, count - at < kBlock ? count - at : kBlock, to);
  }
}

template <class Steps>
void decode_blocks(const unsigned char* from, size_t count, float* to) {
  constexpr size_t kBlock = Steps::kBlock;
  for (size_t at = 0; at < count; at += kBlock, from += sizeof(float) + Steps::bytes(kBlock)) {
    float scale;
    memcpy(&scale, from, sizeof scale);
    const size_t some = count - at < kBlock ? count - at : kBlock;
    Steps::decode(from + sizeof scale, some, scale, to + at);
  }
}

constexpr CodecKernels kCodecKernels = {
    {encode_bfloat, decode_bfloat},
    {encode_blocks<Int8Steps>, decode_blocks<Int8Steps>},
    {encode_blocks<Fp8Steps>, decode_blocks<Fp8Steps>},
    {encode_blocks<Int4Steps>, decode_blocks<Int4Steps>},
};

}  // namespace
}  // namespace dlaunch
