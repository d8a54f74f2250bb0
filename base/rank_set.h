// RankSet: a set of ranks, which users write and we print as "0,2-5". A plain value.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/result.h"

namespace dlaunch {

using RankSet = std::set<int>;

// "0,2-5" -> {0,2,3,4,5}. Ranks are below max_ranks; ranges run upwards.
Result<RankSet> parse_rank_set(std::string_view text, int max_ranks = 1 << 20);

// {0,2,3,4,5} -> "0,2-5"; empty -> "".
std::string format_rank_set(const RankSet& ranks);

}  // namespace dlaunch
