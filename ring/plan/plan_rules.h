// Plan rules: DLAUNCH_PLAN changes, for experiments, how collectives go over sockets and through
// shared memory. ';' separates rules, and the first one that fits a call holds:
//
//   COLLECTIVE:SIZES:CHANGE[,CHANGE…]     all_reduce:1M-:ring,granule=128K;all::window=8
//
// COLLECTIVE as in dl_explain, or all. SIZES: from-to with both ends, either one left out, or
// empty; bytes of the larger one of what a rank gives and gets. CHANGE, over sockets: an algorithm
// that the collective has (exchange, doubling, star, direct, grid, ring, racks, tree, chain; see
// ring/plan/schedule.h), granule=BYTES or window=GRANULES; through shared memory: shm-one-shot,
// shm-blocks, shm-exchange or shm-chunk=BYTES, as far as ring/plan/shm_plan.h has room for it.
// If several hosts have several ranks each, the calls are those between the hosts, and those on
// a host. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ring/call/plane.h"
#include "ring/plan/schedule.h"
#include "ring/plan/shm_plan.h"

namespace dlaunch {

struct PlanRule {
  std::optional<Collective> collective;  // none: all
  std::size_t least = 0, most = SIZE_MAX;
  std::optional<Algorithm> algorithm;
  std::optional<std::size_t> granule_bytes, window;
  ShmWish shm;
};
using PlanRules = std::vector<PlanRule>;

// Errc::usage with the rule that is wrong and what could stand there.
Result<PlanRules> parse_plan_rules(std::string_view text);

// `tuning` with the changes of the rules for calls of this shape; `ranks`: of all.
Tuning tuning_by(const PlanRules& rules, const Shape& shape, int ranks, const Tuning& tuning);
ShmWish shm_wish_by(const PlanRules& rules, const Shape& shape, int ranks);

}  // namespace dlaunch
