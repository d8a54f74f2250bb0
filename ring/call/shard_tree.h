// ShardTree: the order of reductions whose results do not depend on the number of ranks. Virtual
// shards are the leaves of a binary tree. A node of level l and index i covers the shards from
// i*2^l to (i+1)*2^l - 1, as far as they exist; its value is its left child's op its right child's,
// or the left child's alone where the right one covers no shard. Every rank holds neighbouring
// shards, so it can compute the nodes below which it holds all shards, and sends those. Pure.
//
// The idea of virtual shards: EasyScale (Li et al., SC 2023). The tree is ours.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "dlaunch/ring.h"

namespace dlaunch {

struct ShardNode {
  int level = 0;
  int index = 0;
  auto operator<=>(const ShardNode&) const = default;
};

class ShardTree {
 public:
  // 1 to DL_MOST_SHARDS
  explicit ShardTree(int shards) : shards_(shards) {
    while ((1 << height_) < shards) ++height_;
  }

  int shards() const { return shards_; }
  ShardNode root() const { return {height_, 0}; }
  int first(ShardNode node) const { return node.index << node.level; }
  int last(ShardNode node) const;  // behind its shards
  // Where there is a right child; else the node has the value of the left one. Not of a leaf.
  bool has_right(ShardNode node) const { return first(right(node)) < shards_; }
  static ShardNode left(ShardNode node) { return {node.level - 1, 2 * node.index}; }
  static ShardNode right(ShardNode node) { return {node.level - 1, 2 * node.index + 1}; }
  // The fewest nodes that cover exactly the shards [first, last), in order.
  std::vector<ShardNode> cover(int first, int last) const;

 private:
  int shards_;
  int height_ = 0;
};

// Computes values of nodes, some elements at a time, with memory of its own for partial results:
// at most two blocks of 64 KiB for each level.
class ShardReducer {
 public:
  // op must be reducible for dtype.
  ShardReducer(const ShardTree& tree, dl_dtype dtype, dl_op op);

  // The values of a node that need not be computed, null: its children are known.
  using Known = std::function<const void*(ShardNode)>;
  // Writes `count` elements of the node, from element `first` of the known values on. `out` may be
  // exactly the place of known values; otherwise it must not overlap them. An average is divided by
  // the number of shards at the root.
  void reduce(ShardNode node, const Known& known, std::size_t first, std::size_t count, void* out);

 private:
  const void* values_of(ShardNode node, bool is_right, const Known& known, std::size_t first,
                        std::size_t count);
  void combine(ShardNode node, const Known& known, std::size_t first, std::size_t count, void* out);

  const ShardTree& tree_;
  const dl_dtype dtype_;
  const dl_op op_;
  const std::size_t element_;
  std::vector<std::vector<std::byte>> partial_;  // by level, left and right
};

// Calls that the communicator composes: the elements that a rank reduces for all.
struct Slice {
  std::size_t first = 0, count = 0;
};
// By rank, end to end.
std::vector<Slice> slices_of(std::size_t count, int ranks);
// Up to so many bytes of all ranks together, every rank reduces everything: two steps with slices
// would cost more.
inline constexpr std::size_t kToAllBytes = 1 << 13;
// What a core reduces at a time, so that it stays in a cache.
inline constexpr std::size_t kCacheBlockBytes = 1 << 16;

// How a reduction over shards moves, which all ranks compute alike.
struct ShardMoves {
  std::vector<std::vector<ShardNode>> nodes;  // by rank: those that it sends
  std::vector<Slice> slices;                  // by rank: the elements that it reduces
  bool to_all = false;  // every rank gets all nodes and reduces all elements; no slices then

  std::size_t sent_by(int rank) const { return nodes[static_cast<std::size_t>(rank)].size(); }
  std::size_t all_nodes() const;
};
ShardMoves shard_moves(const ShardTree& tree, int ranks, std::size_t count,
                       std::size_t element_bytes);

}  // namespace dlaunch
