// Moves pieces of the state from those who hold it to those who need it, and checks each.
#pragma once

#include <functional>
#include <span>

#include "elastic/state/plan.h"
#include "elastic/state/rounds.h"

namespace dlaunch {

PieceTable piece_table(std::span<const std::byte> bytes);

// Collective. memory: where this rank has an object, or is to have it. Pieces are received in their
// place and compared there with the table that the holders agreed on; when all fit, so does the
// whole. A damaged one is fetched again from the next source and said; after kTries the pull has
// failed. Does nothing at all if there are no receivers.
inline constexpr int kTries = 4;
Result<void> pull_objects(Rounds& rounds, std::span<const Pull> pulls,
                          const std::function<std::span<std::byte>(ObjectId)>& memory);

}  // namespace dlaunch
