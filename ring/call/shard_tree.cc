#include "ring/call/shard_tree.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/even_share.h"
#include "ring/call/slices.h"
#include "ring/kernels/reduce.h"

namespace dlaunch {

int ShardTree::last(ShardNode node) const {
  return std::min((node.index + 1) << node.level, shards_);
}

std::vector<ShardNode> ShardTree::cover(int first, int last) const {
  std::vector<ShardNode> nodes;
  while (first < last) {
    ShardNode node{0, first};
    while (node.level < height_ && node.index % 2 == 0) {
      const ShardNode parent{node.level + 1, node.index / 2};
      if (this->last(parent) > last) break;
      node = parent;
    }
    nodes.push_back(node);
    first = this->last(node);
  }
  return nodes;
}

ShardReducer::ShardReducer(const ShardTree& tree, dl_dtype dtype, dl_op op)
    : tree_(tree),
      dtype_(dtype),
      op_(op),
      element_(dtype_bytes(dtype)),
      partial_(2 * static_cast<std::size_t>(tree.root().level + 1)) {}

void ShardReducer::reduce(ShardNode node, const Known& known, std::size_t first, std::size_t count,
                          void* out) {
  auto* to = static_cast<std::byte*>(out);
  const std::size_t block = kCacheBlockBytes / element_;
  for (std::size_t done = 0; done < count; done += block) {
    combine(node, known, first + done, std::min(block, count - done), to + done * element_);
  }
}

void ShardReducer::combine(ShardNode node, const Known& known, std::size_t first, std::size_t count,
                           void* out) {
  const bool at_root = node == tree_.root();
  const dl_op op = op_ == DL_AVG && !at_root ? DL_SUM : op_;
  std::array<const void*, 2> operands{known(node), nullptr};
  std::size_t some = 1;
  if (operands[0] != nullptr) {
    operands[0] = static_cast<const std::byte*>(operands[0]) + first * element_;
  } else {
    operands[0] = values_of(ShardTree::left(node), false, known, first, count);
    if (tree_.has_right(node)) {
      operands[some++] = values_of(ShardTree::right(node), true, known, first, count);
    }
  }
  dlaunch::reduce(std::span(operands).first(some), out, count, dtype_, op,
                  op == DL_AVG ? tree_.shards() : 0);
}

const void* ShardReducer::values_of(ShardNode node, bool is_right, const Known& known,
                                    std::size_t first, std::size_t count) {
  const void* at = known(node);
  while (at == nullptr && !tree_.has_right(node)) at = known(node = ShardTree::left(node));
  if (at != nullptr) return static_cast<const std::byte*>(at) + first * element_;
  auto& partial = partial_[2 * static_cast<std::size_t>(node.level) + (is_right ? 1 : 0)];
  partial.resize(kCacheBlockBytes);
  combine(node, known, first, count, partial.data());
  return partial.data();
}

std::size_t ShardMoves::all_nodes() const {
  std::size_t all = 0;
  for (const auto& of_rank : nodes) all += of_rank.size();
  return all;
}

ShardMoves shard_moves(const ShardTree& tree, int ranks, std::size_t count,
                       std::size_t element_bytes) {
  ShardMoves moves;
  for (int r = 0; r < ranks; ++r) {
    const ShardRange own = shard_range(tree.shards(), r, ranks);
    moves.nodes.push_back(tree.cover(own.first, own.last));
  }
  moves.to_all = ranks == 1 || goes_to_all(count * element_bytes, moves.all_nodes());
  if (!moves.to_all) moves.slices = slices_of(count, ranks);
  return moves;
}

}  // namespace dlaunch
