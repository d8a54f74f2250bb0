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
#include <vector>

#include "dlaunch/ring.h"
#include "ring/call/plane.h"

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

// How a reduction over shards moves, which all ranks compute alike.
struct ShardMoves {
  std::vector<std::vector<ShardNode>> nodes;  // by rank: those that it sends
  std::vector<Part> slices;                   // by rank: the elements that it reduces
  bool to_all = false;  // every rank gets all nodes and reduces all elements; no slices then

  std::size_t all_nodes() const;
};
ShardMoves shard_moves(const ShardTree& tree, int ranks, std::size_t count,
                       std::size_t element_bytes);

}  // namespace dlaunch
