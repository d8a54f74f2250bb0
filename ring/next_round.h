// How an elastic process comes from one round into the next.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "ring/communicator.h"
#include "ring/links/bootstrap.h"
#include "ring/membership.h"

namespace dlaunch {

// Leaves the round of `impl`, if it is in one, and waits for the next one whose members really
// meet; `impl` is then its communicator. version: the newest state that this process holds. On an
// error, which another round would not mend, `impl` is one that has ended with it.
Result<void> join_next_round(Membership& membership, const JobView& job, std::uint64_t version,
                             std::unique_ptr<Communicator>& impl);

}  // namespace dlaunch
