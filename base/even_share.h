// An even division of items among ranks. Pure.
#pragma once

#include <cstdint>

namespace dlaunch {

struct Share {
  std::uint64_t first = 0, last = 0;
};

// Rank's part of `count` items cut evenly: parts differ by at most one.
constexpr Share even_share(std::uint64_t count, int rank, int size) {
  const auto n = static_cast<std::uint64_t>(size), r = static_cast<std::uint64_t>(rank);
  const std::uint64_t each = count / n, more = count % n;  // count * r could overflow
  return {each * r + more * r / n, each * (r + 1) + more * (r + 1) / n};
}

// The virtual shards [first, last) of a rank.
struct ShardRange {
  int first = 0, last = 0;
};
constexpr ShardRange shard_range(int shards, int rank, int size) {
  const Share share = even_share(static_cast<std::uint64_t>(shards), rank, size);
  return {static_cast<int>(share.first), static_cast<int>(share.last)};
}

}  // namespace dlaunch
