// What ranks hold of a state, as values that they tell each other.
//
// A committed copy consists of objects: object 0 is all replicated memory, object 1 + r the sharded
// memory of rank r. A rank holds object 0, its own shard and those of the ranks before it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

// A commit: see dl_state_version.
struct Version {
  std::uint64_t round = 0, number = 0;
  auto operator<=>(const Version&) const = default;
};

// A committed copy. layout: the round in which the shards were cut as they are; of two copies of
// one version the later layout is the better one.
struct CopyId {
  Version version;
  std::uint64_t layout = 0;
  auto operator<=>(const CopyId&) const = default;
};

using ObjectId = int;
inline constexpr ObjectId kReplicated = 0;
inline constexpr ObjectId shard_of(int rank) { return 1 + rank; }

struct Holding {
  CopyId id;
  std::uint64_t base = 0;  // added to the rounds of a job that began with a snapshot
  int world = 0;           // ranks that the shards were cut for
  std::map<ObjectId, std::uint64_t> objects;  // bytes
};

std::string to_text(const Version& version);      // "commit 17 of round 3"
std::string to_text(ObjectId object, int world);  // "the shard of rank 2 of 4"

std::string encode(const std::vector<Holding>& holdings);
Result<std::vector<Holding>> decode_holdings(std::string_view bytes);

// By piece of kPieceBytes, the CRC-32 of an object's content.
using PieceTable = std::vector<std::uint32_t>;
using PieceTables = std::map<ObjectId, PieceTable>;
std::string encode(const PieceTables& tables);
Result<PieceTables> decode_tables(std::string_view bytes);

}  // namespace dlaunch
