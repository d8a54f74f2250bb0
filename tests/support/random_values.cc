#include "random_values.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>

namespace random_ops {
namespace {

// A 16-bit format by its parameters, so that both are converted by plain arithmetic.
template <int kFraction, int kLeastExponent>
struct Small {
  using Storage = std::uint16_t;
  using Number = float;
  static constexpr int kTop = (1 << (15 - kFraction)) - 1;  // exponent of infinity

  static float widen(std::uint16_t bits) {
    static const auto* const table = [] {
      auto* const numbers = new std::vector<float>(65536);
      for (std::size_t i = 0; i < numbers->size(); ++i) {
        (*numbers)[i] = decode(static_cast<std::uint16_t>(i));
      }
      return numbers;
    }();
    return (*table)[bits];
  }
  // To nearest, ties to even.
  static std::uint16_t narrow(float x) {
    const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
    const double size = std::fabs(static_cast<double>(x));
    const int infinite = kTop << kFraction;
    if (std::isnan(x)) return static_cast<std::uint16_t>(sign | infinite | 1 << (kFraction - 1));
    int bits = infinite;
    if (!std::isinf(x)) {
      const int exponent = size == 0 ? kLeastExponent : std::max(std::ilogb(size), kLeastExponent);
      const double steps = std::nearbyint(std::ldexp(size, kFraction - exponent));
      bits = std::min(((exponent - kLeastExponent) << kFraction) + static_cast<int>(steps), bits);
    }
    return static_cast<std::uint16_t>(sign | bits);
  }

 private:
  static float decode(std::uint16_t bits) {
    const int exponent = bits >> kFraction & kTop, fraction = bits & ((1 << kFraction) - 1);
    double size = 0;
    if (exponent == kTop) {
      size = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                           : std::numeric_limits<double>::infinity();
    } else {
      const int whole = exponent == 0 ? fraction : fraction + (1 << kFraction);
      size = std::ldexp(whole, std::max(exponent, 1) - 1 + kLeastExponent - kFraction);
    }
    return static_cast<float>(std::copysign(size, (bits & 0x8000) != 0 ? -1.0 : 1.0));
  }
};

template <class T>
struct Plain {
  using Storage = T;
  using Number = T;
  static T widen(T x) { return x; }
  static T narrow(T x) { return x; }
};

using Half = Small<10, -14>;
using Brain = Small<7, -126>;

// An 8-bit format. Without infinity its largest code is NaN, and so is what is too large.
template <int kFraction, int kLeastExponent, bool kHasInfinity>
struct Tiny {
  using Storage = std::uint8_t;
  using Number = float;
  static constexpr int kNan = 0x7f, kTop = kHasInfinity ? 0x7c : kNan;

  static float widen(std::uint8_t bits) {
    const int magnitude = bits & 0x7f, fraction = magnitude & ((1 << kFraction) - 1);
    const int exponent = magnitude >> kFraction;
    const int whole = exponent == 0 ? fraction : fraction + (1 << kFraction);
    double size = std::ldexp(whole, std::max(exponent, 1) - 1 + kLeastExponent - kFraction);
    if (magnitude == kTop) size = std::numeric_limits<double>::infinity();
    if (magnitude > 0x7c && (kHasInfinity || magnitude == kNan)) size = std::nan("");
    return static_cast<float>(std::copysign(size, (bits & 0x80) != 0 ? -1.0 : 1.0));
  }
  // To nearest, ties to even.
  static std::uint8_t narrow(float x) {
    const int sign = std::signbit(x) ? 0x80 : 0;
    if (std::isnan(x)) return static_cast<std::uint8_t>(sign | kNan);
    const double size = std::fabs(static_cast<double>(x));
    int bits = kTop;
    if (!std::isinf(x)) {
      const int exponent = size == 0 ? kLeastExponent : std::max(std::ilogb(size), kLeastExponent);
      const double steps = std::nearbyint(std::ldexp(size, kFraction - exponent));
      bits = std::min(((exponent - kLeastExponent) << kFraction) + static_cast<int>(steps), kTop);
    }
    return static_cast<std::uint8_t>(sign | bits);
  }
};
using E4m3 = Tiny<3, -6, false>;
using E5m2 = Tiny<2, -14, true>;

// Complex numbers have the values of twice as many real ones.
bool is_complex(dl_dtype dtype) { return dtype == DL_COMPLEX64 || dtype == DL_COMPLEX128; }
dl_dtype real_of(dl_dtype dtype) { return dtype == DL_COMPLEX64 ? DL_FLOAT32 : DL_FLOAT64; }

template <class Body>
auto with_format(dl_dtype dtype, Body body) {
  switch (dtype) {
    case DL_INT8:
      return body(Plain<std::int8_t>());
    case DL_UINT8:
      return body(Plain<std::uint8_t>());
    case DL_INT32:
      return body(Plain<std::int32_t>());
    case DL_UINT32:
      return body(Plain<std::uint32_t>());
    case DL_INT64:
      return body(Plain<std::int64_t>());
    case DL_UINT64:
      return body(Plain<std::uint64_t>());
    case DL_FLOAT16:
      return body(Half());
    case DL_BFLOAT16:
      return body(Brain());
    case DL_FLOAT8_E4M3:
      return body(E4m3());
    case DL_FLOAT8_E5M2:
      return body(E5m2());
    case DL_FLOAT32:
      return body(Plain<float>());
    default:
      return body(Plain<double>());
  }
}

template <class T>
T bits_as(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class Format>
typename Format::Storage special(std::uint64_t h) {
  using N = typename Format::Number;
  using Limits = std::numeric_limits<N>;
  const N numbers[] = {
      Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), N(0), N(-0.0), N(1), N(-1.5),
      Limits::max(),       -Limits::max(),     Limits::denorm_min()};
  const std::size_t choice = h % 64;
  if (choice < std::size(numbers)) return Format::narrow(numbers[choice]);
  using Storage = typename Format::Storage;
  // Denormals of either sign in this format, else anything.
  const std::uint64_t sign = h >> 63 << (8 * sizeof(Storage) - 1);
  if (choice < 24) return bits_as<Storage>(sign | (h >> 8 & 0x7f));
  return bits_as<Storage>(h >> 6);
}

template <class Format>
typename Format::Storage element(std::uint64_t key, std::size_t i, Flavour flavour) {
  const std::uint64_t h = mix(key + i * 0x9e3779b97f4a7c15);
  if constexpr (std::is_floating_point_v<typename Format::Number>) {
    using N = typename Format::Number;
    if (flavour == Flavour::whole) return Format::narrow(static_cast<N>(h % 7) - 3);
    if (flavour == Flavour::rounding) {
      const double size = std::ldexp(static_cast<double>(h >> 11), static_cast<int>(h % 8) - 55);
      return Format::narrow(static_cast<N>((h >> 3 & 1) != 0 ? -size : size));
    }
    if (flavour == Flavour::special) return special<Format>(h);
  }
  return bits_as<typename Format::Storage>(h);
}

// Integers wrap in 64 bits and are cut when they are stored.
template <class N>
N combine(N a, N b, dl_op op) {
  if constexpr (std::is_floating_point_v<N>) {
    if (op == DL_SUM || op == DL_AVG || op == kPremul) return a + b;
    if (op == DL_PRODUCT) return a * b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<N>::quiet_NaN();
    return op == DL_MAX ? std::max(a, b) : std::min(a, b);
  } else {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    switch (op) {
      case DL_SUM:
      case DL_AVG:
        return static_cast<N>(x + y);
      case DL_PRODUCT:
        return static_cast<N>(x * y);
      case DL_MAX:
        return std::max(a, b);
      case DL_MIN:
        return std::min(a, b);
      case DL_BAND:
        return static_cast<N>(x & y);
      case DL_BOR:
        return static_cast<N>(x | y);
      default:
        return static_cast<N>(x ^ y);
    }
  }
}

template <class Format>
void store(void* to, std::size_t i, typename Format::Storage value) {
  std::memcpy(static_cast<char*>(to) + i * sizeof value, &value, sizeof value);
}

template <class Format>
bool agree(typename Format::Storage got, typename Format::Storage want, const dl_op* op) {
  if (std::memcmp(&got, &want, sizeof got) == 0) return true;
  if constexpr (std::is_floating_point_v<typename Format::Number>) {
    if (op == nullptr) return false;
    const auto a = Format::widen(got), b = Format::widen(want);
    if (std::isnan(a) && std::isnan(b)) return true;
    return (*op == DL_MAX || *op == DL_MIN) && a == 0 && b == 0;
  }
  return false;
}

// a op b of words with so many bits.
std::uint64_t own_word(std::uint64_t a, std::uint64_t b, std::size_t bits, dl_op op) {
  if (op == kOwnCommuting) return a + b;
  const std::size_t half = bits / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  const std::uint64_t factor = (a & mask) * (b & mask),
                      shift = (b & mask) * (a >> half) + (b >> half);
  return (factor & mask) | (shift & mask) << half;
}

void combine_own(const void* in, void* inout, std::size_t bytes, std::size_t element, dl_op op) {
  const std::size_t word = std::min<std::size_t>(element, sizeof(std::uint64_t));
  for (std::size_t at = 0; at < bytes; at += word) {
    std::uint64_t a = 0, b = 0;
    std::memcpy(&a, static_cast<const char*>(in) + at, word);
    std::memcpy(&b, static_cast<const char*>(inout) + at, word);
    const std::uint64_t result = own_word(a, b, 8 * word, op);
    std::memcpy(static_cast<char*>(inout) + at, &result, word);
  }
}

double factor_of(std::size_t rank) { return rank % 2 == 0 ? 0.5 : -2; }

template <dl_op op>
dl_op make_own() {
  dl_op made = DL_OP_ANY_INT;
  dl_op_create(
      [](const void* in, void* inout, std::size_t count, dl_dtype dtype, void*) {
        const std::size_t element = dl_dtype_bytes(dtype);
        combine_own(in, inout, count * element, element, op);
        return 0;
      },
      op == kOwnCommuting, nullptr, &made);
  return made;
}

void fill_own(void* to, const std::vector<std::uint64_t>& keys, std::size_t first,
              std::size_t count, dl_dtype dtype, dl_op op, Flavour flavour) {
  const std::size_t element = dl_dtype_bytes(dtype);
  std::vector<char> left(count * element);
  fill(to, keys[0], first, count, dtype, flavour);
  for (std::size_t r = 1; r < keys.size(); ++r) {
    std::memcpy(left.data(), to, left.size());
    fill(to, keys[r], first, count, dtype, flavour);
    combine_own(left.data(), to, left.size(), element, op);
  }
}

// Of complex numbers.
template <class T>
void fill_product(void* to, const std::vector<std::uint64_t>& keys, std::size_t first,
                  std::size_t count, dl_dtype dtype, Flavour flavour) {
  std::vector<T> left(2 * count), right(2 * count);
  fill(left.data(), keys[0], first, count, dtype, flavour);
  for (std::size_t r = 1; r < keys.size(); ++r) {
    fill(right.data(), keys[r], first, count, dtype, flavour);
    for (std::size_t i = 0; i < left.size(); i += 2) {
      const T a = left[i], b = left[i + 1], c = right[i], d = right[i + 1];
      left[i] = a * c - b * d;
      left[i + 1] = a * d + b * c;
    }
  }
  if (count > 0) std::memcpy(to, left.data(), left.size() * sizeof(T));
}

std::string hex(const void* at, std::size_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  char text[24];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool is_float(dl_dtype dtype) { return dtype >= DL_FLOAT16; }

dl_op made_op(dl_op op, int rank) {
  if (op == kPremul) {
    static const auto made = [] {
      std::array<dl_op, 2> ops{};
      for (int r = 0; r < 2; ++r) dl_op_create_premul_sum(factor_of(r), &ops[r % 2]);
      return ops;
    }();
    return made[rank % 2];
  }
  static const dl_op in_order = make_own<kOwnInOrder>(), commuting = make_own<kOwnCommuting>();
  return op == kOwnInOrder ? in_order : op == kOwnCommuting ? commuting : op;
}

void fill(void* to, std::uint64_t key, std::size_t first, std::size_t count, dl_dtype dtype,
          Flavour flavour) {
  if (is_complex(dtype)) return fill(to, key, 2 * first, 2 * count, real_of(dtype), flavour);
  with_format(dtype, [&]<class Format>(Format) {
    for (std::size_t i = 0; i < count; ++i) {
      store<Format>(to, i, element<Format>(key, first + i, flavour));
    }
  });
}

void fill_reduced(void* to, const std::vector<std::uint64_t>& keys, std::size_t first,
                  std::size_t count, dl_dtype dtype, dl_op op, Flavour flavour) {
  if (is_own(op)) return fill_own(to, keys, first, count, dtype, op, flavour);
  if (is_complex(dtype)) {
    const dl_dtype real = real_of(dtype);
    if (op != DL_PRODUCT) {
      return fill_reduced(to, keys, 2 * first, 2 * count, real, op, flavour);
    }
    return real == DL_FLOAT32 ? fill_product<float>(to, keys, first, count, dtype, flavour)
                              : fill_product<double>(to, keys, first, count, dtype, flavour);
  }
  with_format(dtype, [&]<class Format>(Format) {
    using N = typename Format::Number;
    for (std::size_t i = 0; i < count; ++i) {
      const auto of_rank = [&](std::size_t r) {
        const N value = Format::widen(element<Format>(keys[r], first + i, flavour));
        if (op != kPremul) return value;
        return Format::widen(Format::narrow(static_cast<N>(value * static_cast<N>(factor_of(r)))));
      };
      N sum = of_rank(0);
      for (std::size_t r = 1; r < keys.size(); ++r) sum = combine<N>(sum, of_rank(r), op);
      if (op == DL_AVG) sum = static_cast<N>(sum / static_cast<N>(keys.size()));
      store<Format>(to, i, Format::narrow(sum));
    }
  });
}

std::string difference(const void* got, const void* want, std::size_t count, dl_dtype dtype,
                       const dl_op* op) {
  if (count == 0 || std::memcmp(got, want, count * dl_dtype_bytes(dtype)) == 0) return "";
  if (is_complex(dtype)) return difference(got, want, 2 * count, real_of(dtype), op);
  return with_format(dtype, [&]<class Format>(Format) -> std::string {
    using Storage = typename Format::Storage;
    for (std::size_t i = 0; i < count; ++i) {
      Storage a, b;
      const char* const at = static_cast<const char*>(got) + i * sizeof a;
      std::memcpy(&a, at, sizeof a);
      std::memcpy(&b, static_cast<const char*>(want) + i * sizeof b, sizeof b);
      if (agree<Format>(a, b, op)) continue;
      return "element " + std::to_string(i) + " is " + hex(&a, sizeof a) + ", not " +
             hex(&b, sizeof b);
    }
    return "";
  });
}

}  // namespace random_ops
