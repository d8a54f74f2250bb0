// How many workers each host of a list gets. Pure.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hostfile.h"

namespace dlaunch {

// By host; 0: the job does without it. `per_host` (--nproc) wins over the slots of the list, where
// a host without a number has one; `total` (-n) fills the hosts in their order, and deals what goes
// beyond all slots out in turn. Errc::usage: more than max_slots allow, or than per_host makes.
Result<std::vector<int>> share_out(const std::vector<HostEntry>& hosts, std::optional<int> per_host,
                                   std::optional<int> total);

}  // namespace dlaunch
