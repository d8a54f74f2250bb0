// How a call goes through shared memory, and what there is room for. Pure.
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

// What the segments have room for, and where: see ring/shm/shm_memory.h.
struct ShmShape {
  int ranks = 0;
  std::size_t chunk_bytes = 0;
  std::size_t small_bytes = 0;
  std::size_t exchange_bytes = 0;  // the largest chunk that two ranks exchange; 0: they do not
  bool own_cores = false;          // each rank has a core

  std::size_t control_bytes() const;
  std::size_t data_bytes() const;
  // Offsets in the control segment.
  std::size_t pair() const;              // where the memory begins that two ranks both write
  std::size_t group_small(int r) const;  // rank r's small messages, in that of a group
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

// Whether two ranks can do it as an exchange: an all_reduce, and a reduce, which is one of which
// only the root takes the results.
bool has_exchange(Collective collective);

// How a call is done through shared memory: decided from what all ranks know alike.
struct ShmPlan {
  enum class Way : std::uint8_t { in_entry, one_shot, blocks, exchange };
  Way way = Way::in_entry;
  std::size_t input_bytes = 0;  // the most that a rank gives
  std::size_t chunk = 0;        // blocks, exchange: elements of a full chunk
  std::size_t blocks = 0;
  bool by_rule = false;
};
// What DLAUNCH_PLAN asks for, where it can be had: in one shot goes what fits into its slots, an
// exchange takes two ranks with a core each, and chunks have their largest size.
struct ShmWish {
  std::optional<ShmPlan::Way> way;
  std::optional<std::size_t> chunk_bytes;
};
ShmPlan plan_shm(const Shape& shape, int ranks, const ShmShape& layout, const ShmWish& wish = {});
// For a reduction in blocks from memory that is read in place.
ShmPlan plan_direct(const Shape& shape, int ranks, const ShmShape& layout);

// "" for what goes with the arrival, else as in DLAUNCH_PLAN.
std::string_view shm_way_name(ShmPlan::Way way);

}  // namespace dlaunch
