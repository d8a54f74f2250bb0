#include "ring/plan/shm_plan.h"

#include <algorithm>

namespace dlaunch {
namespace {

constexpr std::size_t kMostDirect = 128 << 10;
// An all_reduce in one shot has each rank read all inputs. If each rank has a core, the second
// hand-over of a slice soon costs less: with 4, 8 and 16 ranks from 4 KiB, 1 KiB and some 600 B on;
// one shot of 8 KiB took 1.4, 2.3 and 4 times as long.
constexpr std::size_t kReadByAll = 64 << 10, kLeastInOneShot = 512;

// Small enough for a pipeline of some blocks, large enough to be worth their flags.
struct Chunks {
  std::size_t least;   // bytes
  std::size_t blocks;  // this many, unless chunks would be smaller, or too large for a slot
};
// Two ranks exchange their data in one piece while it fits one chunk each: overlap saves less than
// another hand-over costs.
constexpr Chunks kPipeline{.least = 16 << 10, .blocks = 4},
    kExchange{.least = 64 << 10, .blocks = 16};

void cut_in_blocks(ShmPlan& plan, const Shape& shape, std::size_t ranks, Chunks chunks,
                   std::size_t most, const ShmWish& wish) {
  const auto& traits = traits_of(shape.collective);
  const std::size_t usual =
      std::max(plan.input_bytes / (chunks.blocks * ranks) / 64 * 64, std::min(most, chunks.least));
  const std::size_t bytes = std::min(wish.chunk_bytes.value_or(usual), most);
  plan.chunk = bytes / shape.element_bytes;
  // A block of a reduction without parts holds a chunk for each rank.
  const std::size_t per_block = plan.chunk * (traits.reduces && !traits.in_parts ? ranks : 1);
  plan.blocks = (longest_part(shape) + per_block - 1) / per_block;
}

std::size_t most_in_one_shot(const Shape& shape, const ShmShape& layout) {
  if (shape.collective != Collective::all_reduce || !layout.own_cores) return layout.small_bytes;
  const auto n = static_cast<std::size_t>(layout.ranks);
  return std::clamp(kReadByAll / (n * n), kLeastInOneShot, layout.small_bytes);
}

ShmPlan::Algorithm algorithm_for(const Shape& shape, const ShmShape& layout, std::size_t bytes,
                                 const ShmWish& wish) {
  using Algorithm = ShmPlan::Algorithm;
  if (bytes <= kInlineBytes) return Algorithm::in_entry;
  const bool exchange = layout.exchange_bytes > 0 && has_exchange(shape.collective);
  if (wish.algorithm == Algorithm::one_shot && bytes <= layout.small_bytes)
    return Algorithm::one_shot;
  if (wish.algorithm == Algorithm::blocks || (wish.algorithm == Algorithm::exchange && exchange))
    return *wish.algorithm;
  if (bytes <= (exchange ? kExchangeAbove : most_in_one_shot(shape, layout)))
    return Algorithm::one_shot;
  return exchange ? Algorithm::exchange : Algorithm::blocks;
}

}  // namespace

bool has_exchange(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce;
}

std::string_view shm_algorithm_name(ShmPlan::Algorithm algorithm) {
  switch (algorithm) {
    case ShmPlan::Algorithm::one_shot:
      return "shm-one-shot";
    case ShmPlan::Algorithm::blocks:
      return "shm-blocks";
    case ShmPlan::Algorithm::exchange:
      return "shm-exchange";
    case ShmPlan::Algorithm::in_entry:
      break;
  }
  return "";
}

ShmPlan plan_shm(const Shape& shape, int ranks, const ShmShape& layout, const ShmWish& wish) {
  ShmPlan plan;
  if (shape.collective == Collective::barrier) return plan;
  const auto n = static_cast<std::size_t>(ranks);
  // For scatter also on ranks that give nothing.
  plan.input_bytes =
      longest_part(shape) * shape.element_bytes * (traits_of(shape.collective).in_parts ? n : 1);
  plan.algorithm = algorithm_for(shape, layout, plan.input_bytes, wish);
  plan.by_rule = plan.algorithm == wish.algorithm ||
                 (plan.algorithm >= ShmPlan::Algorithm::blocks && wish.chunk_bytes);
  if (plan.algorithm == ShmPlan::Algorithm::exchange) {
    cut_in_blocks(plan, shape, n, kExchange, layout.exchange_bytes, wish);
  } else if (plan.algorithm == ShmPlan::Algorithm::blocks) {
    // Two ranks with a core each use transfers for calls without a reduction; see
    // ring/shm/shm_engine.h.
    const bool transfer = layout.exchange_bytes > 0 && !traits_of(shape.collective).reduces;
    cut_in_blocks(plan, shape, n, kPipeline, transfer ? layout.exchange_bytes : layout.chunk_bytes,
                  wish);
  }
  return plan;
}

ShmPlan plan_direct(const Shape& shape, int ranks, const ShmShape& layout) {
  ShmPlan plan = plan_shm(shape, ranks, layout);
  plan.algorithm = ShmPlan::Algorithm::blocks;
  // The inputs come from other ranks, the results go to them: both must fit the cache.
  cut_in_blocks(plan, shape, static_cast<std::size_t>(ranks), kPipeline,
                std::min(layout.chunk_bytes, kMostDirect), {});
  return plan;
}

}  // namespace dlaunch
