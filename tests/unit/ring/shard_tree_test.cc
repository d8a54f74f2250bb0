#include "ring/call/shard_tree.h"

#include <cstring>
#include <map>
#include <random>

#include <doctest/doctest.h>

#include "base/even_share.h"
#include "tests/unit/ring/shard_reference.h"

using namespace dlaunch;

TEST_CASE(
    "shard tree: a cover has exactly its shards, in order, and no two nodes that make a third") {
  for (int shards = 1; shards <= 33; ++shards) {
    const ShardTree tree(shards);
    CHECK((tree.first(tree.root()) == 0 && tree.last(tree.root()) == shards));
    for (int first = 0; first <= shards; ++first) {
      for (int last = first; last <= shards; ++last) {
        int at = first;
        ShardNode before{-1, 0};
        for (const ShardNode node : tree.cover(first, last)) {
          REQUIRE(tree.first(node) == at);
          at = tree.last(node);
          REQUIRE(at > tree.first(node));
          const bool siblings =
              node.level == before.level && node.index == before.index + 1 && before.index % 2 == 0;
          REQUIRE_FALSE(siblings);
          before = node;
        }
        REQUIRE(at == last);
      }
    }
    CHECK(tree.cover(0, shards) == std::vector{tree.root()});
  }
}

TEST_CASE("shard tree: a rank sends one node where both numbers are powers of two") {
  for (const int shards : {1, 2, 8, 64}) {
    for (int ranks = 1; ranks <= shards; ranks *= 2) {
      CHECK(shard_moves(ShardTree(shards), ranks, 1000000, 4).all_nodes() ==
            static_cast<std::size_t>(ranks));
    }
  }
  CHECK(shard_moves(ShardTree(8), 6, 1000000, 4).all_nodes() == 6);
  CHECK(shard_moves(ShardTree(8), 3, 1000000, 4).all_nodes() == 5);
  CHECK(shard_moves(ShardTree(24), 8, 1000000, 4).all_nodes() == 16);
}

TEST_CASE("shard tree: slices follow each other and have all elements") {
  for (const std::size_t count : {5000UL, 5001UL, 12345UL, 1000000UL}) {
    for (int ranks = 2; ranks <= 40; ++ranks) {
      const ShardMoves moves = shard_moves(ShardTree(64), ranks, count, 4);
      REQUIRE_FALSE(moves.to_all);
      std::size_t at = 0;
      for (const auto& slice : moves.slices) {
        REQUIRE(slice.first == at);
        at += slice.count;
      }
      REQUIRE(at == count);
    }
  }
  CHECK(shard_moves(ShardTree(8), 4, 10, 4).to_all);
  CHECK(shard_moves(ShardTree(8), 1, 1000000, 4).to_all);
}

// In plain C++, for the order alone.
float sum_of(const std::vector<float>& values, std::size_t first, std::size_t width) {
  if (width == 1) return values[first];
  const std::size_t half = width / 2;
  const float left = sum_of(values, first, half);
  return first + half < values.size() ? left + sum_of(values, first + half, half) : left;
}

TEST_CASE("shard tree: any holder of parts gets the bits of the plain recursion") {
  std::mt19937 random(3);
  for (const int shards : {1, 2, 3, 5, 8, 13, 24}) {
    std::vector<float> values(static_cast<std::size_t>(shards));
    for (float& value : values) {
      value = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 40) - 20);
    }
    std::size_t width = 1;
    while (width < values.size()) width *= 2;
    const float expected = sum_of(values, 0, width);
    const ShardTree tree(shards);
    ShardReducer reducer(tree, DL_FLOAT32, DL_SUM);
    for (int ranks = 1; ranks <= shards + 1; ++ranks) {
      std::map<ShardNode, float> sent;
      for (const auto& nodes : shard_moves(tree, ranks, 1, 4).nodes) {
        for (const ShardNode node : nodes) {
          const auto leaf = [&](ShardNode at) -> const void* {
            return at.level == 0 ? &values[static_cast<std::size_t>(at.index)] : nullptr;
          };
          reducer.reduce(node, leaf, 0, 1, &sent[node]);
        }
      }
      const auto known = [&](ShardNode at) -> const void* {
        const auto found = sent.find(at);
        return found == sent.end() ? nullptr : &found->second;
      };
      float got = 0;
      reducer.reduce(tree.root(), known, 0, 1, &got);
      CHECK(std::memcmp(&got, &expected, sizeof got) == 0);
    }
  }
}

TEST_CASE(
    "shard tree: blocks and places do not change values, also where the result replaces one") {
  constexpr std::size_t kCount = 50000;  // several blocks
  const ShardTree tree(5);
  auto values = shard_values(5, kCount, DL_FLOAT32, 9);
  const auto expected = shard_reference(values, kCount, DL_FLOAT32, DL_AVG);
  ShardReducer reducer(tree, DL_FLOAT32, DL_AVG);
  const auto leaf = [&](ShardNode at) -> const void* {
    return at.level == 0 ? values[static_cast<std::size_t>(at.index)].data() : nullptr;
  };
  std::vector<std::byte> out(kCount * 4);
  reducer.reduce(tree.root(), leaf, 0, kCount, out.data());
  CHECK(out == expected);
  reducer.reduce(tree.root(), leaf, 1000, 500, out.data());
  CHECK(std::memcmp(out.data(), expected.data() + 4000, 2000) == 0);
  reducer.reduce(tree.root(), leaf, 0, kCount, values[2].data());
  CHECK(values[2] == expected);
}
