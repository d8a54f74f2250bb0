// The parts of a call's data. Apart from what runs calls, so that dlaunch-bench can predict a
// choice without that.
#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/ring_names.h"
#include "ring/call/plane.h"

namespace dlaunch {
namespace {

constexpr CollectiveTraits kTraits[] = {
    /* all_reduce */ {.reduces = true},
    /* reduce_scatter */ {.reduces = true, .in_parts = true},
    /* all_gather */ {.out_parts = true},
    /* broadcast */ {.rooted = true},
    /* barrier */ {},
    /* reduce */ {.reduces = true, .rooted = true, .out_at_root = true},
    /* gather */ {.rooted = true, .out_parts = true, .out_at_root = true},
    /* scatter */ {.rooted = true, .in_parts = true, .in_at_root = true},
    /* all_to_all */ {.in_parts = true, .out_parts = true},
    /* all_reduce_shards */ {.reduces = true},
    /* scan */ {.reduces = true},
    /* exscan */ {.reduces = true},
    /* compressed_average */ {.reduces = true},
    /* all_reduce_some */ {.reduces = true},
};
static_assert(std::size(kTraits) == std::size(kCollectiveNames));
constexpr CollectiveTraits kUnknown = {};

}  // namespace

const CollectiveTraits& traits_of(Collective collective) {
  const auto index = static_cast<std::size_t>(collective);
  return index < std::size(kTraits) ? kTraits[index] : kUnknown;
}

std::size_t longest_part(const Shape& shape) {
  if (shape.splits) return shape.splits->longest;
  if (shape.counts.empty()) return shape.count;
  return *std::max_element(shape.counts.begin(), shape.counts.end());
}

Part part_of(const Shape& shape, int r) {
  const auto at = static_cast<std::size_t>(r);
  if (shape.counts.empty()) return {at * shape.count, shape.count};
  const auto begin = shape.counts.begin();
  return {std::accumulate(begin, begin + r, std::size_t{0}), shape.counts[at]};
}

std::size_t all_parts(const Shape& shape, int ranks) {
  const Part last = part_of(shape, ranks - 1);
  return last.first + last.count;
}

std::size_t in_count(const Shape& shape, int rank, int ranks) {
  const auto& traits = traits_of(shape.collective);
  if (traits.in_at_root && rank != shape.root) return 0;
  if (shape.splits) return shape.splits->given_count();
  return traits.in_parts ? all_parts(shape, ranks) : part_of(shape, rank).count;
}

std::size_t out_count(const Shape& shape, int rank, int ranks) {
  const auto& traits = traits_of(shape.collective);
  if (traits.out_at_root && rank != shape.root) return 0;
  if (shape.collective == Collective::exscan && rank == 0) return 0;
  if (shape.splits) return shape.splits->taken_count();
  if (traits.out_parts) return all_parts(shape, ranks);
  return traits.in_parts ? part_of(shape, rank).count : shape.count;
}

namespace {

Delivery split_delivery(const Splits& splits, int giver, int taker) {
  const auto g = static_cast<std::size_t>(giver), t = static_cast<std::size_t>(taker);
  Delivery delivery{.exists = true};
  if (taker == splits.rank) {
    delivery.from = g < splits.from.size() ? splits.from[g] : 0;
    delivery.to = splits.taken[g].first;
    delivery.count = splits.taken[g].count;
  }
  if (giver == splits.rank) {
    delivery.from = splits.given[t].first;
    delivery.count = splits.given[t].count;
  }
  return delivery;
}

}  // namespace

Delivery delivery(const Shape& shape, int giver, int taker) {
  const Part by_giver = part_of(shape, giver), by_taker = part_of(shape, taker);
  switch (shape.collective) {
    case Collective::all_gather:
      return {true, 0, by_giver.first, by_giver.count};
    case Collective::gather:
      return {taker == shape.root, 0, by_giver.first, by_giver.count};
    case Collective::broadcast:
      return {giver == shape.root, 0, 0, shape.count};
    case Collective::scatter:
      return {giver == shape.root, by_taker.first, 0, by_taker.count};
    case Collective::all_to_all:
      if (shape.splits) return split_delivery(*shape.splits, giver, taker);
      return {true, by_taker.first, by_giver.first, by_giver.count};
    default:
      return {};
  }
}

}  // namespace dlaunch
