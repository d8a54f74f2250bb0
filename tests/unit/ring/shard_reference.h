// Values of virtual shards, and what their reduction must be: the whole tree on one rank, as a
// plain recursion.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "ring/call/plane.h"
#include "ring/kernels/reduce.h"

namespace dlaunch {

using ShardValues = std::vector<std::vector<std::byte>>;

// By shard. Floats of many magnitudes, so that another order gives other bits.
inline ShardValues shard_values(int shards, std::size_t count, dl_dtype dtype, unsigned seed) {
  const std::size_t element = dtype_bytes(dtype);
  ShardValues values(static_cast<std::size_t>(shards));
  for (auto& of_shard : values) {
    std::mt19937 random(seed++);
    of_shard.resize(count * element);
    for (std::size_t i = 0; i < count; ++i) {
      const float small = std::ldexp(static_cast<float>(random() % 2047) - 1000.0F,
                                     static_cast<int>(random() % 12) - 8);
      std::uint64_t bits = random() % 100;
      if (dtype == DL_FLOAT32 || dtype == DL_BFLOAT16) {
        std::uint32_t as_float;
        std::memcpy(&as_float, &small, 4);
        bits = dtype == DL_FLOAT32 ? as_float : as_float >> 16;
      } else if (dtype == DL_FLOAT64) {
        const double large = small;
        std::memcpy(&bits, &large, 8);
      } else if (dtype == DL_FLOAT16) {
        bits = 0x3000 + random() % 0x1000;
      }
      std::memcpy(of_shard.data() + i * element, &bits, element);  // little-endian
    }
  }
  return values;
}

inline std::vector<std::byte> shard_reference(const ShardValues& values, std::size_t first,
                                              std::size_t width, std::size_t count, dl_dtype dtype,
                                              dl_op op, int divisor) {
  if (width == 1 && divisor <= 1) return values[first];
  const auto child = [&](std::size_t at) {
    return shard_reference(values, at, width / 2, count, dtype, op == DL_AVG ? DL_SUM : op, 0);
  };
  const auto left = child(first);
  if (first + width / 2 >= values.size()) return left;
  const auto right = child(first + width / 2);
  std::vector<std::byte> out(left.size());
  const std::array<const void*, 2> both{left.data(), right.data()};
  reduce(both, out.data(), count, dtype, op, divisor);
  return out;
}
inline std::vector<std::byte> shard_reference(const ShardValues& values, std::size_t count,
                                              dl_dtype dtype, dl_op op) {
  std::size_t width = 1;
  while (width < values.size()) width *= 2;
  return shard_reference(values, 0, width, count, dtype, op,
                         op == DL_AVG ? static_cast<int>(values.size()) : 0);
}

}  // namespace dlaunch
