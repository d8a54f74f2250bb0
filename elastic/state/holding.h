// Values in which ranks report their parts of a state.
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

#include "base/record.h"
#include "base/result.h"

namespace dlaunch {

// A commit: see dl_state_version.
struct Version {
  std::uint64_t round = 0, number = 0;
  auto operator<=>(const Version&) const = default;
};

// A committed copy. layout: the round in which the shards got their present cut; of two copies of
// one version the one with the later layout is better.
struct CopyId {
  Version version;
  std::uint64_t layout = 0;
  auto operator<=>(const CopyId&) const = default;
};

using ObjectId = int;
inline constexpr ObjectId kReplicated = 0;
inline constexpr ObjectId shard_of(int rank) { return 1 + rank; }

// Goes to other ranks: its members, in this order, are the format.
struct Holding {
  CopyId id;
  std::uint64_t base = 0;  // added to the round numbers of a job that began with a snapshot
  int world = 0;           // the number of ranks that the shards were cut for
  std::map<ObjectId, std::uint64_t> objects;  // bytes
};

std::string to_text(const Version& version);      // "commit 17 of round 3"
std::string to_text(ObjectId object, int world);  // "the shard of rank 2 of 4"

inline constexpr RecordLimits kAnyNumber{.items = SIZE_MAX};
std::string encode(const std::vector<Holding>& holdings);
Result<std::vector<Holding>> decode_holdings(std::string_view bytes);

// The CRC-32 of each piece of kPieceBytes of an object's content.
using PieceTable = std::vector<std::uint32_t>;
using PieceTables = std::map<ObjectId, PieceTable>;
std::string encode(const PieceTables& tables);
Result<PieceTables> decode_tables(std::string_view bytes);

}  // namespace dlaunch
