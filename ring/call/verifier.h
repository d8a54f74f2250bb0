// Verifier: compares what the ranks hold after calls whose results are equal on all of them
// (--verify). The library adds in a fixed order, so a difference proves that data changed where
// they should not have: in memory, in a processor, or on their way. Pure: the communicator hashes
// the results and exchanges what the Verifier gives it, ring/verified_calls.cc.
//
// After each such call every rank adds the hashes of its result, block by block. Now and then, at
// the same call on all ranks, the ranks exchange one number that stands for all hashes since the
// last time. If these numbers differ, they exchange the hashes, and each rank comes to the same
// verdict: where more than half of the ranks hold the same bytes of a block, the others, or their
// connections, are corrupt: a giver whose data change between two sends makes its receiver look
// so. Two ranks, or halves, show a difference, but not who is wrong. Nor do ranks that pass results
// on: what one of them changes, the ranks after it get changed. If all ranks with other bytes are
// on one host of several, the text says so. The ranks trust each other's hashes and verdicts.
//
// NaNs and functions of the program that are not deterministic may differ without corruption.
//
// Modes:
// - sample: hashes the results of one call in kSampled, chosen by its number. So it finds a rank
//   that corrupts data again and again, and a single event in one of kSampled cases. Commits before
//   that may hold corrupt data.
// - results: hashes all bytes. It finds whatever makes a rank's result differ from another's. A
//   wrong value on which all ranks agree stays unseen: a rank took another one's values in wrongly,
//   or reduced them wrongly, before it gave the result to all.
// - full: likewise, and each rank gets all ranks' values in an all_reduce, and reduces all of them
//   itself, in the order of ranks. The ranks compare the values that they got, and the results. So
//   this finds those wrong values, too. It changes no other collective but a broadcast. No rank
//   passes anything on, up to 16 ranks: so with three ranks or more the verdict has a name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/contract.h"
#include "base/rank_set.h"
#include "base/result.h"
#include "ring/call/plane.h"

namespace dlaunch {

// One call in so many is in the sample.
inline constexpr std::uint64_t kSampled = 64;
// Whether this mode looks at call `seq`: the same on all ranks.
bool looks_at(VerifyMode mode, std::uint64_t seq);

// The blocks of some data, each with a hash of its own.
struct HashedBlocks {
  std::size_t bytes = 0;  // of all data
  std::size_t block = 0;  // bytes of a block; the last one may be shorter

  std::size_t number() const;
  Part place(std::size_t i) const;  // in bytes
};
HashedBlocks blocks_of(std::size_t bytes);

// What a rank has after a call.
struct VerifiedData {
  enum class Of : std::uint8_t { result, values };  // values: those of all ranks, end to end
  std::uint64_t seq = 0;
  Collective collective = Collective::all_reduce;
  Of of = Of::result;
  bool passed_on = false;  // ranks got it from ranks that had got it
  HashedBlocks blocks;
};

// A rank in the text of a verdict.
struct VerifiedRank {
  std::string name;  // "rank 3 (pid 4711 on a)"
  int in_job = 0;    // its number there, also in a group
  int host = 0;      // the same for ranks of one host
};

// What ranks compare first.
struct VerifyDigest {
  std::uint64_t hash = 0, inverse = 0;
  bool operator==(const VerifyDigest&) const = default;
};

class Verifier {
 public:
  struct Limits {
    std::size_t calls = 64, bytes = 16 << 20;  // between two comparisons
  };

  Verifier(int ranks, const Limits& limits);

  // By block: data.blocks.number() hashes.
  void add(const VerifiedData& data, std::span<const std::uint64_t> hashes);
  bool holds_any() const { return !data_.empty(); }
  bool due() const { return calls_ >= limits_.calls || bytes_ >= limits_.bytes; }

  VerifyDigest digest() const;
  // Of all ranks. Errc::corrupt: a digest makes no sense, because it changed on its way.
  Result<bool> agree(std::span<const VerifyDigest> all) const;
  // For the second exchange: as many words on all ranks.
  std::vector<std::uint64_t> details() const;
  // Of all ranks, end to end: who is corrupt. Error::rank is the lowest corrupt rank, -1 if the
  // verdict names none. `who`: by rank.
  Error verdict(std::span<const std::uint64_t> all, std::span<const VerifiedRank> who) const;
  // The ranks agree: begins again.
  void clear();

 private:
  struct Difference {
    const VerifiedData* data;
    Part place{};            // bytes, from the first block that differs to the end of the last
    std::size_t blocks = 0;  // that differ
    RankSet odd{};           // the ranks whose bytes are not those of more than half
    bool majority = true;    // in each block
  };
  std::optional<Difference> first_difference(std::span<const std::uint64_t> all) const;

  const std::size_t ranks_;
  const Limits limits_;
  std::vector<VerifiedData> data_;
  std::vector<std::uint64_t> hashes_;  // of all of data_
  std::size_t calls_ = 0, bytes_ = 0;
};

}  // namespace dlaunch
