// Decides which ranks take which copy of the state, and which send it: every rank decides from the
// same facts, with the same result. Pure.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/state/holding.h"

namespace dlaunch {

inline constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;

// The copy that all ranks are to have.
struct Choice {
  struct Object {
    std::uint64_t bytes = 0;
    std::vector<int> holders;  // ranks, ascending
  };
  CopyId id;
  std::uint64_t base = 0;
  int world = 0;
  std::map<ObjectId, Object> objects;
};

// The newest copy whose objects the ranks together hold. sharded: shards count.
std::optional<Choice> choose(std::span<const std::vector<Holding>> by_rank, bool sharded);
// Of all such copies, newest first.
std::vector<Version> complete_versions(std::span<const std::vector<Holding>> by_rank, bool sharded);
// Why choose() had to pass over the newest copy: "commit 17 of round 3 lacks the shard of rank 2 of
// 4".
std::string shortfall(std::span<const std::vector<Holding>> by_rank, bool sharded);

// The ranks that get a copy of rank's shard at each commit, nearest first.
std::vector<int> replica_holders(int rank, int size, int replicas);

// How a rank of `size` uses a copy made for `world` ranks: it needs its own shard and those that it
// keeps for others, or all shards if the number of ranks has changed.
struct Cast {
  int size = 0;
  int replicas = 0;
  bool sharded = false;
  std::vector<ObjectId> needed(int rank, int world) const;
};

// One object's way to the ranks that need it. If holders differ in content, the majority is right,
// or in a tie the group with the lowest rank; the others receive it again.
struct Pull {
  ObjectId object = 0;
  std::uint64_t bytes = 0;
  PieceTable table;
  std::vector<int> sources;
  std::vector<int> receivers;
  std::vector<int> differing;  // the receivers that hold something else under the same name
};

// tables: by rank, for the objects of the choice that it holds. Leaves out objects that no rank
// needs; keeps pulls without receivers, because their tables have been compared.
Result<std::vector<Pull>> plan_pulls(const Choice& choice, std::span<const PieceTables> tables,
                                     const Cast& cast);

// A piece on its way; it goes to other ranks, and its members, in this order, are the format. All
// ranks work through their own pieces in the order of the whole list: both ends of the first piece
// that has not arrived are then at work, so no rank waits for ever.
struct Piece {
  std::uint64_t pull = 0;  // index into the list of pulls
  std::uint64_t index = 0;
  int source = 0;
  int receiver = 0;

  std::uint64_t offset() const { return index * kPieceBytes; }
  std::uint64_t bytes(const Pull& of) const { return std::min(kPieceBytes, of.bytes - offset()); }
};

// The pieces that `rank` sends or receives, striped over all sources.
std::vector<Piece> pieces_of(int rank, std::span<const Pull> pulls);
// The same pieces again, each from the next source, if there is another.
std::vector<Piece> again(std::vector<Piece> damaged, std::span<const Pull> pulls);

std::uint64_t piece_count(std::uint64_t bytes);

}  // namespace dlaunch
