// What the records of NCCL's operations (base/nccl_record.h), or the counts of its RAS service, say
// about a hang: which rank has enqueued fewer collectives on a communicator than the others, or
// another one. Pure.
//
// NCCL returns from a call before the operation is done, so these counts do not show whether a rank
// waits or computes: a hang must be known from other evidence.
//
// A rank is ahead on a communicator if another one there has enqueued fewer collectives: it
// waits, or will as soon as it needs the result. A rank that is behind on one communicator and
// ahead on none is at fault. If all that are behind are ahead elsewhere, they wait in a circle.
// Messages are not counted: a rank whose last operation is a message that is not done is at fault
// only if no other one is. Communicators that a rank has destroyed are left out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/nccl_record.h"
#include "base/rank_set.h"

namespace dlaunch {

using NcclRecords = std::map<int, std::vector<NcclProgress>>;  // by rank of the job

struct NcclVerdict {
  RankSet ranks;
  std::string sentence;
};
// nullopt: the records do not tell the ranks apart.
std::optional<NcclVerdict> nccl_verdict(const NcclRecords& records);

}  // namespace dlaunch
