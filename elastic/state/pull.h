// Moves pieces of the state from holders to receivers, and checks each.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "elastic/state/plan.h"
#include "elastic/state/rounds.h"

namespace dlaunch {

PieceTable piece_table(std::span<const std::byte> bytes);

// An object that its receivers got in another way than by pieces.
struct Filled {
  std::size_t pull = 0;        // index into the list of pulls
  std::vector<Piece> misfits;  // this rank's pieces that differ from the table
  bool in_memory = false;      // its content is this rank's registered memory, too
};
// The pieces of this rank's object that do not fit the table, with the first source as their
// origin.
std::vector<Piece> misfits(std::span<const Pull> pulls, std::size_t pull, int rank,
                           std::span<const std::byte> object);

// Collective. memory: where this rank has an object, or is to have it. Receivers take pieces in
// place and compare them with the table that the holders agreed on; when all fit, so does the
// whole. A damaged piece is reported and fetched again from the next source; after kTries the pull
// has failed. Of `filled` objects only misfits are fetched. Does nothing if there are no receivers.
inline constexpr int kTries = 4;
Result<void> pull_objects(Rounds& rounds, std::span<const Pull> pulls,
                          const std::function<std::span<std::byte>(ObjectId)>& memory,
                          const std::optional<Filled>& filled = {});

}  // namespace dlaunch
