// Moves an elastic process from one round into the next.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "ring/communicator.h"
#include "ring/links/job_view.h"
#include "ring/membership.h"

namespace dlaunch {

// Leaves the round of `impl`, if it is in one, and waits for the next round whose members all meet;
// `impl` is then its communicator. version: the newest state that this process holds. On an error
// that another round would not cure, `impl` is a communicator that has ended with it.
Result<void> join_next_round(Membership& membership, const JobView& job, std::uint64_t version,
                             std::unique_ptr<Communicator>& impl);

}  // namespace dlaunch
