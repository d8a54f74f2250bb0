// The loops of the wire codecs (ring/kernels/wire_codec.h), compiled once per instruction set by
// the same rules as those of reduce_kernels.h; include it after that file.
#pragma once

#include "ring/kernels/reduce_kernels.h"

namespace dlaunch {
namespace {

constexpr float kSteps = 127.0F;
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

// 0 for a block of zeros, NaN if a value is not finite. Comparing bits orders sizes, and
// vectorises; a maximum of floats would not.
float scale_of(const float* block, size_t count) {
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<int32_t>(bits_of(block[i]) & 0x7fffffff);
    largest = bits > largest ? bits : largest;
  }
  if (largest >= kInfinite) return float_of(0x7fc00000);
  return float_of(static_cast<uint32_t>(largest)) / kSteps;
}

void encode_steps(const float* block, size_t count, unsigned char* to) {
  const float scale = scale_of(block, count);
  memcpy(to, &scale, sizeof scale);
  auto* const values = reinterpret_cast<int8_t*>(to + sizeof scale);
  // A scale so small that its reciprocal overflows: the block is as good as zero.
  const float factor = scale > 0 ? 1.0F / scale : 0.0F;
  if (!(factor > 0) || static_cast<int32_t>(bits_of(factor)) >= kInfinite) {
    memset(values, 0, count);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    // Adding a number that leaves no room for a fraction rounds to nearest even; the lowest bits
    // are then the number. No value exceeds kSteps by more than rounding takes away.
    values[i] = static_cast<int8_t>(bits_of(block[i] * factor + kNoFraction));
  }
}

void decode_steps(const unsigned char* from, size_t count, float* block) {
  float scale;
  memcpy(&scale, from, sizeof scale);
  const auto* const values = reinterpret_cast<const int8_t*>(from + sizeof scale);
  for (size_t i = 0; i < count; ++i) block[i] = static_cast<float>(values[i]) * scale;
}

void encode_int8(const float* from, size_t count, unsigned char* to) {
  for (size_t at = 0; at < count; at += kCodecBlock, to += sizeof(float) + kCodecBlock) {
    encode_steps(from + at, count - at < kCodecBlock ? count - at : kCodecBlock, to);
  }
}

void decode_int8(const unsigned char* from, size_t count, float* to) {
  for (size_t at = 0; at < count; at += kCodecBlock, from += sizeof(float) + kCodecBlock) {
    decode_steps(from, count - at < kCodecBlock ? count - at : kCodecBlock, to + at);
  }
}

constexpr CodecKernels kCodecKernels = {encode_bfloat, decode_bfloat, encode_int8, decode_int8};

}  // namespace
}  // namespace dlaunch
