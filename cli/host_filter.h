// DeepSpeed's --include and --exclude: selects the hosts of a list, and their GPUs. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/hostfile.h"

namespace dlaunch {

struct HostPick {
  std::string host;
  std::vector<int> gpus;  // by number, ascending; empty: all
};

// "worker-0@worker-1:0,2". Errors: usage.
Result<std::vector<HostPick>> parse_host_picks(std::string_view text);

// Hosts with the numbers of their GPUs; a host's slots are its GPUs.
struct PickedHosts {
  std::vector<HostEntry> hosts;  // slots: the number of remaining GPUs
  std::string gpus;              // for CUDA_VISIBLE_DEVICES on each; "": the first ones
};

// `keep`: only these picks, else all but these. Errors (usage): a host or GPU does not exist,
// nothing is left, or hosts with different GPUs, which one job's environment cannot express.
Result<PickedHosts> pick_hosts(const std::vector<HostEntry>& hosts,
                               const std::vector<HostPick>& picks, bool keep);

}  // namespace dlaunch
