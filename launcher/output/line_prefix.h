// The prefix of a worker's line from the user's template. Pure.
#pragma once

#include <map>
#include <string>

#include "base/rank_set.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

using LocalRanks = std::map<int, int>;  // by rank

// The plan's template with ${rank}, ${local_rank}, ${role_name} and ${hostname} filled in, as in
// torchrun; several ranks of a merged line are "0-3". A spare, which has no rank, is RankSet{-1}.
// An unknown local rank is replaced by the rank.
std::string line_prefix(const Plan& plan, const RankSet& ranks, const LocalRanks& local_ranks);

}  // namespace dlaunch
