// Moves pieces of the state from those who hold it to those who need it, and checks each.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "elastic/state/plan.h"
#include "elastic/state/rounds.h"

namespace dlaunch {

PieceTable piece_table(std::span<const std::byte> bytes);

// An object that its receivers were given in another way than by pieces.
struct Filled {
  std::size_t pull = 0;        // index into the list of pulls
  std::vector<Piece> misfits;  // those of this rank that are not what they should be
  bool in_memory = false;      // its content is this rank's registered memory, too
};
// What of this rank's object does not fit the table, as come from the first source.
std::vector<Piece> misfits(std::span<const Pull> pulls, std::size_t pull, int rank,
                           std::span<const std::byte> object);

// Collective. memory: where this rank has an object, or is to have it. Pieces are received in their
// place and compared there with the table that the holders agreed on; when all fit, so does the
// whole. A damaged one is fetched again from the next source and said; after kTries the pull has
// failed. Of what is filled only misfits are fetched. Does nothing at all if there are no
// receivers.
inline constexpr int kTries = 4;
Result<void> pull_objects(Rounds& rounds, std::span<const Pull> pulls,
                          const std::function<std::span<std::byte>(ObjectId)>& memory,
                          const std::optional<Filled>& filled = {});

}  // namespace dlaunch
