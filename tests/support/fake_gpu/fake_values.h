// The arithmetic of the fake NCCL: NCCL's numbers of types and ops, computed in a way that is right
// for small whole numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

struct FakeHalf {
  std::uint16_t bits;
  FakeHalf() = default;
  FakeHalf(double value) {
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent);
    const auto sign = static_cast<std::uint16_t>(value < 0 ? 0x8000 : 0);
    const auto low = static_cast<int>((fraction * 2 - 1) * 1024);
    bits = static_cast<std::uint16_t>(value == 0 ? sign : sign | (exponent + 14) << 10 | low);
  }
  operator double() const {
    if ((bits & 0x7fff) == 0) return 0;
    const double size = std::ldexp(1024 + (bits & 0x3ff), (bits >> 10 & 0x1f) - 25);
    return (bits & 0x8000) != 0 ? -size : size;
  }
};

struct FakeBfloat {
  std::uint16_t bits;
  FakeBfloat() = default;
  FakeBfloat(double value) {
    const auto single = static_cast<float>(value);
    std::uint32_t all = 0;
    std::memcpy(&all, &single, sizeof all);
    bits = static_cast<std::uint16_t>(all >> 16);
  }
  operator double() const {
    const std::uint32_t all = static_cast<std::uint32_t>(bits) << 16;
    float single = 0;
    std::memcpy(&single, &all, sizeof single);
    return static_cast<double>(single);
  }
};

template <class T, class Wide>
void fake_reduce_as(const std::vector<const char*>& in, char* out, std::size_t count, int op) {
  for (std::size_t i = 0; i < count; ++i) {
    Wide sum{};
    for (std::size_t r = 0; r < in.size(); ++r) {
      T value;
      std::memcpy(&value, in[r] + i * sizeof value, sizeof value);
      const auto next = static_cast<Wide>(value);
      if (r == 0)
        sum = next;
      else if (op == 1)
        sum = static_cast<Wide>(sum * next);
      else if (op == 2)
        sum = std::max(sum, next);
      else if (op == 3)
        sum = std::min(sum, next);
      else
        sum = static_cast<Wide>(sum + next);
    }
    if (op == 4) sum = sum / static_cast<Wide>(in.size());
    const T result(sum);
    std::memcpy(out + i * sizeof result, &result, sizeof result);
  }
}

template <class T>
void fake_scale_as(char* values, std::size_t count, double factor) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    value = T(static_cast<double>(value) * factor);
    std::memcpy(values + i * sizeof value, &value, sizeof value);
  }
}

// A factor as one value of this type.
inline double fake_factor(const void* at, int dtype) {
  const auto as = [at](auto value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  };
  return dtype == 6   ? as(FakeHalf())
         : dtype == 7 ? as(0.0F)
         : dtype == 8 ? as(0.0)
                      : as(FakeBfloat());
}

inline void fake_scale(char* values, std::size_t count, int dtype, double factor) {
  if (dtype == 6) return fake_scale_as<FakeHalf>(values, count, factor);
  if (dtype == 7) return fake_scale_as<float>(values, count, factor);
  if (dtype == 8) return fake_scale_as<double>(values, count, factor);
  fake_scale_as<FakeBfloat>(values, count, factor);
}

inline void fake_reduce(const std::vector<const char*>& in, char* out, std::size_t count, int dtype,
                        int op) {
  switch (dtype) {
    case 0:
      return fake_reduce_as<std::int8_t, std::int64_t>(in, out, count, op);
    case 1:
      return fake_reduce_as<std::uint8_t, std::uint64_t>(in, out, count, op);
    case 2:
      return fake_reduce_as<std::int32_t, std::int64_t>(in, out, count, op);
    case 3:
      return fake_reduce_as<std::uint32_t, std::uint64_t>(in, out, count, op);
    case 4:
      return fake_reduce_as<std::int64_t, std::int64_t>(in, out, count, op);
    case 5:
      return fake_reduce_as<std::uint64_t, std::uint64_t>(in, out, count, op);
    case 6:
      return fake_reduce_as<FakeHalf, double>(in, out, count, op);
    case 7:
      return fake_reduce_as<float, double>(in, out, count, op);
    case 8:
      return fake_reduce_as<double, double>(in, out, count, op);
    case 9:
      return fake_reduce_as<FakeBfloat, double>(in, out, count, op);
    default:
      std::abort();
  }
}
