// How many workers each host of a list gets. Pure.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hostfile.h"

namespace dlaunch {

// By host; 0: the job does without it. `per_host` (--nproc) wins over the slots of the list; a host
// without a number has one slot. `total` (-n) fills the hosts in their order, and deals the workers
// beyond all slots out in turn. Errc::usage: more workers than max_slots allow, or than per_host
// makes.
Result<std::vector<int>> share_out(const std::vector<HostEntry>& hosts, std::optional<int> per_host,
                                   std::optional<int> total);

}  // namespace dlaunch
