// The kernels' source, compiled once per instruction set (reduce.cc, reduce_avx2.cc,
// reduce_avx512.cc) with that set's compiler flags; the loops are plain and vectorised by the
// compiler. Everything is in an unnamed namespace and takes nothing inline from the standard
// library, so that the linker cannot pick one set's code for another.
//
// Work goes block by block: a block's accumulator stays in the first-level cache while all operands
// pass over it, then it is rounded and stored once.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "ring/kernels/reduce_isa.h"

namespace dlaunch {
namespace {

constexpr size_t kBlockBytes = 8192;

// -- 16-bit floats, branch-free so that the loops vectorise. Source of the half conversions: the
// exponent is rebased by an integer addition; denormals are normalised by a float subtraction.
inline uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}
inline float float_of(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

// To nearest, ties to even. A binary32 has kLost bits more in its fraction, and an exponent that is
// larger by kRebase. Magnitudes from too_large on become infinite.
template <class Storage, uint32_t kLost, uint32_t kRebase>
Storage narrow_to(float f, uint32_t too_large, uint32_t infinite, uint32_t nan) {
  const uint32_t u = bits_of(f);
  const uint32_t sign = u & 0x80000000u;
  const uint32_t magnitude = u ^ sign;
  constexpr uint32_t kDenormalMagic = (kRebase + kLost + 1) << 23;
  constexpr uint32_t kHalf = (1u << (kLost - 1)) - 1;
  const uint32_t special = magnitude > 0x7f800000u ? nan : infinite;
  const uint32_t denormal =
      bits_of(float_of(magnitude) + float_of(kDenormalMagic)) - kDenormalMagic;
  const uint32_t normal =
      (magnitude - (kRebase << 23) + kHalf + (magnitude >> kLost & 1u)) >> kLost;
  const uint32_t value = magnitude >= too_large            ? special
                         : magnitude < (kRebase + 1) << 23 ? denormal
                                                           : normal;
  return static_cast<Storage>(value | sign >> (32 - 8 * sizeof(Storage)));
}

struct Half {
  using Storage = uint16_t;
  static float widen(uint16_t h) {
    const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fff) << 13;
    const uint32_t exponent = magnitude & 0x0f800000u;
    const uint32_t rebased = magnitude + (112u << 23);
    const uint32_t special = rebased + (112u << 23);
    const uint32_t denormal = bits_of(float_of(rebased + (1u << 23)) - float_of(113u << 23));
    const uint32_t value = exponent == 0x0f800000u ? special : exponent == 0 ? denormal : rebased;
    return float_of(value | static_cast<uint32_t>(h & 0x8000) << 16);
  }
  static uint16_t narrow(float f) {
    return narrow_to<uint16_t, 13, 112>(f, 143u << 23, 0x7c00u, 0x7e00u);
  }
};

struct Bfloat {
  using Storage = uint16_t;
  static float widen(uint16_t b) { return float_of(static_cast<uint32_t>(b) << 16); }
  static uint16_t narrow(float f) {
    const uint32_t u = bits_of(f);
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    const uint32_t quiet = u >> 16 | 0x40u;
    return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
};

// -- 8-bit floats, by the same means.
struct E5m2 {
  using Storage = uint8_t;
  static float widen(uint8_t b) { return Half::widen(static_cast<uint16_t>(b << 8)); }
  static uint8_t narrow(float f) {
    return narrow_to<uint8_t, 21, 112>(f, 143u << 23, 0x7cu, 0x7eu);
  }
};

// All ones but for the sign is NaN, which stands for infinity, too.
struct E4m3 {
  using Storage = uint8_t;
  static float widen(uint8_t b) {
    const uint32_t magnitude = static_cast<uint32_t>(b & 0x7f) << 20;
    const uint32_t rebased = magnitude + (120u << 23);
    const uint32_t denormal = bits_of(float_of(rebased + (1u << 23)) - float_of(121u << 23));
    const uint32_t value = magnitude == 0x7fu << 20         ? 0x7fc00000u
                           : (magnitude & 0x07800000u) == 0 ? denormal
                                                            : rebased;
    return float_of(value | static_cast<uint32_t>(b & 0x80) << 24);
  }
  static uint8_t narrow(float f) {
    constexpr uint32_t kTooLarge = 0x43f00000u;  // 480: smaller numbers round to NaN, or below it
    return narrow_to<uint8_t, 20, 120>(f, kTooLarge, 0x7fu, 0x7fu);
  }
};

// Complex numbers, for products: sums are those of twice as many real numbers.
template <class T>
struct Complex {
  struct Storage {
    T real, imaginary;
  };
  static Storage widen(Storage x) { return x; }
  static Storage narrow(Storage x) { return x; }
};

// Element types that need no widening.
template <class T>
struct Plain {
  using Storage = T;
  static T widen(T x) { return x; }
  static T narrow(T x) { return x; }
};

// -- Operations. Integers wrap: the arithmetic is unsigned.
template <class T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<int8_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<uint8_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<int32_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
  using type = uint64_t;
};

// False for integers.
template <class T>
constexpr bool is_nan(T a) {
  return a != a;  // NOLINT(misc-redundant-expression): only a NaN differs from itself
}

// A machine keeps the first operand of two NaNs, and compilers swap the operands as they like. If
// `other` is a's NaN, too, the result is a's NaN in either order.
struct Sum {
  static constexpr bool kDivides = true;  // for an average
  template <class T>
  static T apply(T a, T b) {
    using U = typename UnsignedOf<T>::type;
    const U other = static_cast<U>(is_nan(a) ? a : b);
    return static_cast<T>(static_cast<U>(a) + other);
  }
};
struct Product {
  static constexpr bool kDivides = false;
  template <class T>
  static T apply(T a, T b) {
    using U = typename UnsignedOf<T>::type;
    const U other = static_cast<U>(is_nan(a) ? a : b);
    return static_cast<T>(static_cast<U>(a) * other);
  }
};
// GCC joins the products and sums of a vectorised complex product to fused operations, in spite of
// -ffp-contract=off. This keeps them apart.
#if defined(__has_builtin)
#if __has_builtin(__builtin_assoc_barrier)
#define DL_ROUNDED(x) __builtin_assoc_barrier(x)
#endif
#endif
#ifndef DL_ROUNDED
#define DL_ROUNDED(x) (x)
#endif
struct ComplexProduct {
  static constexpr bool kDivides = false;
  template <class C>
  static C apply(C a, C b) {
    return {DL_ROUNDED(a.real * b.real) - DL_ROUNDED(a.imaginary * b.imaginary),
            DL_ROUNDED(a.real * b.imaginary) + DL_ROUNDED(a.imaginary * b.real)};
  }
};
// A NaN on either side is the result: is_nan() keeps a's, the else branch b's.
struct Max {
  static constexpr bool kDivides = false;
  template <class T>
  static T apply(T a, T b) {
    return (a > b) | is_nan(a) ? a : b;
  }
};
struct Min {
  static constexpr bool kDivides = false;
  template <class T>
  static T apply(T a, T b) {
    return (a < b) | is_nan(a) ? a : b;
  }
};
struct BitAnd {
  static constexpr bool kDivides = false;
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  static constexpr bool kDivides = false;
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  static constexpr bool kDivides = false;
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Unaligned loads and stores that the compiler turns into plain vector moves.
template <class T>
inline T load(const void* base, size_t i) {
  T value;
  memcpy(&value, static_cast<const char*>(base) + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
inline void store(void* base, size_t i, T value) {
  memcpy(static_cast<char*>(base) + i * sizeof(T), &value, sizeof(T));
}

#if defined(__AVX512F__)
constexpr size_t kRegister = 64;
#elif defined(__AVX2__)
constexpr size_t kRegister = 32;
#else
constexpr size_t kRegister = 16;
#endif

// As memcpy() does below its threshold for the processor's own copying.
void copy(void* out, const void* in, size_t bytes) {
  typedef unsigned char Wide __attribute__((vector_size(kRegister)));
  constexpr size_t kStep = 4 * kRegister;
  auto* to = static_cast<unsigned char*>(out);
  const auto* from = static_cast<const unsigned char*>(in);
  if (bytes >= 2 * kStep) {
    const size_t head = (kRegister - reinterpret_cast<uintptr_t>(to) % kRegister) % kRegister;
    memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kStep; to += kStep, from += kStep, bytes -= kStep) {
      const Wide a = load<Wide>(from, 0), b = load<Wide>(from, 1);
      const Wide c = load<Wide>(from, 2), d = load<Wide>(from, 3);
      store<Wide>(to, 0, a);
      store<Wide>(to, 1, b);
      store<Wide>(to, 2, c);
      store<Wide>(to, 3, d);
    }
  }
  memcpy(to, from, bytes);
}

void stream(void* out, const void* in, size_t bytes) {
#if defined(__AVX2__)
  auto* to = static_cast<char*>(out);
  const auto* from = static_cast<const char*>(in);
  const size_t head = (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  if (bytes < head + 64) {
    memcpy(to, from, bytes);
    return;
  }
  memcpy(to, from, head);
  size_t at = head;
  for (; at + 64 <= bytes; at += 64) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), b);
  }
  memcpy(to + at, from + at, bytes - at);
  _mm_sfence();
#else
  copy(out, in, bytes);
#endif
}

// No iteration reads what another one writes: a result may replace an operand only exactly.
#if defined(__clang__)
#define DL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DL_INDEPENDENT _Pragma("GCC ivdep")
#endif

void pass(void* out, void* through, const void* in, size_t bytes) {
  auto* const to = static_cast<unsigned char*>(out);
  auto* const held = static_cast<unsigned char*>(through);
  const auto* const from = static_cast<const unsigned char*>(in);
  DL_INDEPENDENT
  for (size_t i = 0; i < bytes; ++i) {
    const unsigned char was = held[i];
    held[i] = from[i];
    to[i] = was;
  }
}

void pass_streaming(void* out, void* through, const void* in, size_t bytes) {
#if defined(__AVX2__)
  auto* to = static_cast<char*>(out);
  auto* held = static_cast<char*>(through);
  const auto* from = static_cast<const char*>(in);
  const size_t head = (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  if (bytes < head + 64) return pass(out, through, in, bytes);
  pass(to, held, from, head);
  size_t at = head;
  for (; at + 64 <= bytes; at += 64) {
    const auto was_a = load<__m256i>(held + at, 0), was_b = load<__m256i>(held + at, 1);
    const auto a = load<__m256i>(from + at, 0), b = load<__m256i>(from + at, 1);
    store<__m256i>(held + at, 0, a);
    store<__m256i>(held + at, 1, b);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), was_a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), was_b);
  }
  pass(to + at, held + at, from + at, bytes - at);
  _mm_sfence();
#else
  pass(out, through, in, bytes);
#endif
}

// One block: operands base[k] + offset elements.
template <class Format, class Op>
void reduce_block(const void* const* in, size_t operands, size_t from, size_t count,
                  decltype(Format::widen({}))* __restrict acc) {
  using S = typename Format::Storage;
  const void* a = in[0];
  size_t k = 1;
  if (operands >= 4) {
    const void *b = in[1], *c = in[2], *d = in[3];
    for (size_t i = 0; i < count; ++i) {
      const auto ab =
          Op::apply(Format::widen(load<S>(a, from + i)), Format::widen(load<S>(b, from + i)));
      const auto abc = Op::apply(ab, Format::widen(load<S>(c, from + i)));
      acc[i] = Op::apply(abc, Format::widen(load<S>(d, from + i)));
    }
    k = 4;
  } else if (operands >= 2) {
    const void* b = in[1];
    for (size_t i = 0; i < count; ++i) {
      acc[i] = Op::apply(Format::widen(load<S>(a, from + i)), Format::widen(load<S>(b, from + i)));
    }
    k = 2;
  } else {
    for (size_t i = 0; i < count; ++i) acc[i] = Format::widen(load<S>(a, from + i));
  }
  for (; k + 4 <= operands; k += 4) {
    const void *b = in[k], *c = in[k + 1], *d = in[k + 2], *e = in[k + 3];
    for (size_t i = 0; i < count; ++i) {
      const auto ab = Op::apply(acc[i], Format::widen(load<S>(b, from + i)));
      const auto abc = Op::apply(ab, Format::widen(load<S>(c, from + i)));
      const auto abcd = Op::apply(abc, Format::widen(load<S>(d, from + i)));
      acc[i] = Op::apply(abcd, Format::widen(load<S>(e, from + i)));
    }
  }
  for (; k < operands; ++k) {
    const void* b = in[k];
    for (size_t i = 0; i < count; ++i) {
      acc[i] = Op::apply(acc[i], Format::widen(load<S>(b, from + i)));
    }
  }
}

// Two operands need no accumulator.
template <class Format, class Op, bool kTwice, bool kDivide>
void reduce_pair(const ReduceArgs& args, size_t from, size_t end) {
  using S = typename Format::Storage;
  const void *const a = args.in[0], *const b = args.in[1];
  void *const out = args.out, *const also = args.also;
  const int divisor = args.divisor;
  DL_INDEPENDENT
  for (size_t i = from; i < end; ++i) {
    auto both = Op::apply(Format::widen(load<S>(a, i)), Format::widen(load<S>(b, i)));
    if constexpr (kDivide) both = static_cast<decltype(both)>(both / divisor);
    const S result = Format::narrow(both);
    store<S>(out, i, result);
    if constexpr (kTwice) store<S>(also, i, result);
  }
}

// The bytes in one turn of the copy or the reduction: a core's out-of-order execution then overlaps
// the end of one turn with the beginning of the next.
constexpr size_t kTurnBytes = 1024;

template <class Format, class Op, bool kDivide>
void reduce_two(const ReduceArgs& args) {
  if (args.also == nullptr) return reduce_pair<Format, Op, false, kDivide>(args, 0, args.count);
  if (args.pass_out == nullptr) return reduce_pair<Format, Op, true, kDivide>(args, 0, args.count);
  constexpr size_t kSize = sizeof(typename Format::Storage), kTurn = kTurnBytes / kSize;
  for (size_t at = 0; at < args.count; at += kTurn) {
    const size_t end = args.count - at < kTurn ? args.count : at + kTurn;
    pass(static_cast<char*>(args.pass_out) + at * kSize,
         static_cast<char*>(args.pass_through) + at * kSize,
         static_cast<const char*>(args.pass_in) + at * kSize, (end - at) * kSize);
    reduce_pair<Format, Op, true, kDivide>(args, at, end);
  }
}

template <class Format, class Op>
void reduce_all(const ReduceArgs& args) {
  if (args.operands == 2 && !args.streaming) {
    if constexpr (Op::kDivides) {
      if (args.divisor > 0) return reduce_two<Format, Op, true>(args);
    }
    return reduce_two<Format, Op, false>(args);
  }
  using S = typename Format::Storage;
  using A = decltype(Format::widen({}));
  constexpr size_t kBlock = kBlockBytes / sizeof(A);
  alignas(64) A acc[kBlock];
  alignas(64) S rounded[kBlock];
  for (size_t at = 0; at < args.count; at += kBlock) {
    const size_t count = args.count - at < kBlock ? args.count - at : kBlock;
    reduce_block<Format, Op>(args.in, args.operands, at, count, acc);
    if constexpr (Op::kDivides) {
      for (size_t i = 0; args.divisor > 0 && i < count; ++i) {
        acc[i] = static_cast<A>(acc[i] / args.divisor);
      }
    }
    void* out = static_cast<char*>(args.out) + at * sizeof(S);
    if (args.streaming) {
      for (size_t i = 0; i < count; ++i) rounded[i] = Format::narrow(acc[i]);
      stream(out, rounded, count * sizeof(S));
    } else {
      for (size_t i = 0; i < count; ++i) store<S>(out, i, Format::narrow(acc[i]));
    }
  }
}

template <class Format>
void reduce_arithmetic(const ReduceArgs& args) {
  switch (args.op) {
    case DL_SUM:
    case DL_AVG:
      return reduce_all<Format, Sum>(args);
    case DL_PRODUCT:
      return reduce_all<Format, Product>(args);
    case DL_MAX:
      return reduce_all<Format, Max>(args);
    case DL_MIN:
      return reduce_all<Format, Min>(args);
    default:
      return;
  }
}

template <class T>
void reduce_integer(const ReduceArgs& args) {
  switch (args.op) {
    case DL_BAND:
      return reduce_all<Plain<T>, BitAnd>(args);
    case DL_BOR:
      return reduce_all<Plain<T>, BitOr>(args);
    case DL_BXOR:
      return reduce_all<Plain<T>, BitXor>(args);
    default:
      return reduce_arithmetic<Plain<T>>(args);
  }
}

// -- Products of one rank's values, for a sum of products. NCCL takes the factor in the values'
// type, so it is rounded to that one here, too.
template <class Format>
void scale_all(void* out, const void* in, size_t count, double factor) {
  using S = typename Format::Storage;
  using A = decltype(Format::widen({}));
  const A by = Format::widen(Format::narrow(static_cast<A>(factor)));
  DL_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    store<S>(out, i, Format::narrow(Format::widen(load<S>(in, i)) * by));
  }
}

void scale_any(void* out, const void* in, size_t count, dl_dtype dtype, double factor) {
  switch (dtype) {
    case DL_FLOAT16:
      return scale_all<Half>(out, in, count, factor);
    case DL_BFLOAT16:
      return scale_all<Bfloat>(out, in, count, factor);
    case DL_FLOAT32:
      return scale_all<Plain<float>>(out, in, count, factor);
    case DL_FLOAT64:
      return scale_all<Plain<double>>(out, in, count, factor);
    case DL_FLOAT8_E4M3:
      return scale_all<E4m3>(out, in, count, factor);
    case DL_FLOAT8_E5M2:
      return scale_all<E5m2>(out, in, count, factor);
    default:
      return;
  }
}

void reduce_any(const ReduceArgs& args) {
  switch (args.dtype) {
    case DL_INT8:
      return reduce_integer<int8_t>(args);
    case DL_UINT8:
      return reduce_integer<uint8_t>(args);
    case DL_INT32:
      return reduce_integer<int32_t>(args);
    case DL_UINT32:
      return reduce_integer<uint32_t>(args);
    case DL_INT64:
      return reduce_integer<int64_t>(args);
    case DL_UINT64:
      return reduce_integer<uint64_t>(args);
    case DL_FLOAT16:
      return reduce_arithmetic<Half>(args);
    case DL_BFLOAT16:
      return reduce_arithmetic<Bfloat>(args);
    case DL_FLOAT32:
      return reduce_arithmetic<Plain<float>>(args);
    case DL_FLOAT64:
      return reduce_arithmetic<Plain<double>>(args);
    case DL_COMPLEX64:
      return reduce_all<Complex<float>, ComplexProduct>(args);
    case DL_COMPLEX128:
      return reduce_all<Complex<double>, ComplexProduct>(args);
    case DL_FLOAT8_E4M3:
      return reduce_arithmetic<E4m3>(args);
    case DL_FLOAT8_E5M2:
      return reduce_arithmetic<E5m2>(args);
    case DL_DTYPE_ANY_INT:
      return;
  }
}

}  // namespace
}  // namespace dlaunch
