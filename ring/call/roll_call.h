// Roll call: a rank that has waited too long in a collective asks all others, on their control
// links, how far they are. Their control threads answer whatever their callers do. So a rank gets
// the blame only if its whole process stands still or its caller is not in the collective; a rank
// that only waits itself does not.
#pragma once

#include <cstdint>
#include <functional>

#include "base/rank_set.h"

namespace dlaunch {

struct RollCall {
  RankSet silent;   // do not answer
  RankSet outside;  // have not entered the collective, and are in no other
  RankSet behind;   // are in an earlier one: they most likely wait for the others here
};

// Asks about collective `seq`; blocks for a second at most, and less if the communicator ends
// first.
using CallRoll = std::function<RollCall(std::uint64_t seq)>;

}  // namespace dlaunch
