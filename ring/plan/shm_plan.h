// Chooses how a call goes through shared memory, and whether it fits. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ring/call/plane.h"

namespace dlaunch {

inline constexpr std::size_t kInlineBytes = 40;
// Above this, two ranks are faster if each reduces one half.
inline constexpr std::size_t kExchangeAbove = 1 << 10;

// The sizes and places in the segments: see ring/shm/shm_memory.h.
struct ShmShape {
  int ranks = 0;
  std::size_t chunk_bytes = 0;
  std::size_t small_bytes = 0;
  std::size_t exchange_bytes = 0;  // the largest chunk that two ranks exchange; 0: none
  bool own_cores = false;          // each rank has a core

  std::size_t control_bytes() const;
  std::size_t data_bytes() const;
  std::size_t data_stride() const;  // from one rank's part to the next: whole pages, also of 64 KiB
  // Offsets in the control segment.
  std::size_t pair() const;              // the beginning of the memory that two ranks both write
  std::size_t pair_small(int r) const;   // rank r's small messages, behind that memory
  std::size_t group_small(int r) const;  // rank r's small messages, in a group's segment
  // Offsets in memory that two ranks both write.
  std::size_t exchange(int owner, std::uint64_t block) const;
  std::size_t transfer(int giver, std::uint64_t block) const;
  std::size_t pair_bytes() const;  // both
  // Offsets in a data segment.
  std::size_t staging(std::uint64_t block, int chunk) const;
  std::size_t result(std::uint64_t block) const;
  std::size_t staging_bytes() const;  // both; small messages begin behind them
  // Offset from where small messages begin.
  std::size_t small(std::uint64_t seq) const;
};

// Whether two ranks can do it as an exchange: an all_reduce, and a reduce, which is an all_reduce
// whose results only the root takes.
bool has_exchange(Collective collective);

// The algorithm of a call through shared memory, chosen from facts that all ranks share.
struct ShmPlan {
  enum class Algorithm : std::uint8_t { in_entry, one_shot, blocks, exchange };
  Algorithm algorithm = Algorithm::in_entry;
  std::size_t input_bytes = 0;  // the most that a rank gives
  std::size_t chunk = 0;        // blocks, exchange: elements of a full chunk
  std::size_t blocks = 0;
  bool by_rule = false;
};
// The wishes of DLAUNCH_PLAN, as far as possible: one shot takes what fits into its slots, an
// exchange takes two ranks with a core each, and chunks have a largest size.
struct ShmWish {
  std::optional<ShmPlan::Algorithm> algorithm;
  std::optional<std::size_t> chunk_bytes;
};
ShmPlan plan_shm(const Shape& shape, int ranks, const ShmShape& layout, const ShmWish& wish = {});
// For a reduction in blocks from memory that is read in place.
ShmPlan plan_direct(const Shape& shape, int ranks, const ShmShape& layout);

// "" if the data go with the arrival, else as in DLAUNCH_PLAN.
std::string_view shm_algorithm_name(ShmPlan::Algorithm algorithm);

}  // namespace dlaunch
