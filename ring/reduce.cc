#include "ring/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "ring/plane.h"

namespace dlaunch {
namespace {

// Elements that are combined over all operands at a time: the partial results stay in the L1 cache.
constexpr std::size_t kBlock = 1024;

float widen_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) {  // infinity and NaN
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  // As a binary32 with the small exponent of a half, scaled up; exact, subnormals included.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

std::uint16_t narrow_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | (magnitude >> 13 & 0x1ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 leaves the rounded mantissa in the lowest bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  }
  const std::uint32_t odd = magnitude >> 13 & 1;
  return static_cast<std::uint16_t>(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

float widen_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t narrow_bfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// How an element type is stored and in which type it is combined.
template <class T>
struct Same {
  using Stored = T;
  using Value = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};
template <float (*kWiden)(std::uint16_t), std::uint16_t (*kNarrow)(float)>
struct Small {
  using Stored = std::uint16_t;
  using Value = float;
  static float widen(std::uint16_t value) { return kWiden(value); }
  static std::uint16_t narrow(float value) { return kNarrow(value); }
};
using Half = Small<widen_half, narrow_half>;
using Bfloat = Small<widen_bfloat, narrow_bfloat>;

template <dl_op kOp, class T>
T combine(T a, T b) {
  if constexpr (kOp == DL_MAX) return a != a ? a : (b > a || b != b ? b : a);
  if constexpr (kOp == DL_MIN) return a != a ? a : (b < a || b != b ? b : a);
  if constexpr (std::is_floating_point_v<T>) {
    if constexpr (kOp == DL_SUM) return a + b;
    if constexpr (kOp == DL_PRODUCT) return a * b;
  } else {
    // Unsigned and wide enough that neither overflow nor promotion to int can be undefined.
    using U = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    if constexpr (kOp == DL_SUM) return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    if constexpr (kOp == DL_PRODUCT) return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    if constexpr (kOp == DL_BAND) return a & b;
    if constexpr (kOp == DL_BOR) return a | b;
    if constexpr (kOp == DL_BXOR) return a ^ b;
  }
  return a;
}

template <class T>
T divide(T value, int divisor) {
  if constexpr (std::is_floating_point_v<T>) return value / static_cast<T>(divisor);
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
}

template <class E, dl_op kOp>
void reduce_all(std::span<const void* const> in, void* out, std::size_t count, int divisor) {
  using Stored = typename E::Stored;
  typename E::Value partial[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t n = std::min(kBlock, count - begin);
    const auto* const first = static_cast<const Stored*>(in[0]) + begin;
    for (std::size_t i = 0; i < n; ++i) partial[i] = E::widen(first[i]);
    for (const void* operand : in.subspan(1)) {
      const auto* const next = static_cast<const Stored*>(operand) + begin;
      for (std::size_t i = 0; i < n; ++i) partial[i] = combine<kOp>(partial[i], E::widen(next[i]));
    }
    if (divisor > 0) {
      for (std::size_t i = 0; i < n; ++i) partial[i] = divide(partial[i], divisor);
    }
    auto* const to = static_cast<Stored*>(out) + begin;
    for (std::size_t i = 0; i < n; ++i) to[i] = E::narrow(partial[i]);
  }
}

template <class E>
void reduce_as(std::span<const void* const> in, void* out, std::size_t count, dl_op op,
               int divisor) {
  if constexpr (!std::is_floating_point_v<typename E::Value>) {
    if (op == DL_BAND) return reduce_all<E, DL_BAND>(in, out, count, 0);
    if (op == DL_BOR) return reduce_all<E, DL_BOR>(in, out, count, 0);
    if (op == DL_BXOR) return reduce_all<E, DL_BXOR>(in, out, count, 0);
  }
  if (op == DL_PRODUCT) return reduce_all<E, DL_PRODUCT>(in, out, count, 0);
  if (op == DL_MAX) return reduce_all<E, DL_MAX>(in, out, count, 0);
  if (op == DL_MIN) return reduce_all<E, DL_MIN>(in, out, count, 0);
  reduce_all<E, DL_SUM>(in, out, count, op == DL_AVG ? divisor : 0);
}

}  // namespace

bool reducible(dl_dtype dtype, dl_op op) { return !dtype_is_float(dtype) || op <= DL_AVG; }

void reduce(std::span<const void* const> in, void* out, std::size_t count, dl_dtype dtype, dl_op op,
            int divisor, StoreHint) {
  switch (dtype) {
    case DL_INT8:
      return reduce_as<Same<std::int8_t>>(in, out, count, op, divisor);
    case DL_UINT8:
      return reduce_as<Same<std::uint8_t>>(in, out, count, op, divisor);
    case DL_INT32:
      return reduce_as<Same<std::int32_t>>(in, out, count, op, divisor);
    case DL_UINT32:
      return reduce_as<Same<std::uint32_t>>(in, out, count, op, divisor);
    case DL_INT64:
      return reduce_as<Same<std::int64_t>>(in, out, count, op, divisor);
    case DL_UINT64:
      return reduce_as<Same<std::uint64_t>>(in, out, count, op, divisor);
    case DL_FLOAT16:
      return reduce_as<Half>(in, out, count, op, divisor);
    case DL_BFLOAT16:
      return reduce_as<Bfloat>(in, out, count, op, divisor);
    case DL_FLOAT32:
      return reduce_as<Same<float>>(in, out, count, op, divisor);
    case DL_FLOAT64:
      return reduce_as<Same<double>>(in, out, count, op, divisor);
  }
}

}  // namespace dlaunch
