// Topology: this machine's cores as a plain value, and how placement uses it. hwloc fills it
// (topology_hwloc.cc, the only file that includes hwloc.h); tests build it from synthetic strings.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

struct CpuCore {
  std::vector<int> cpus;  // its hardware threads (OS indices) that we may use, ascending
  int socket = 0;         // logical indices, numbered from 0 over the machine
  int numa = 0;
  int l3 = 0;
};

struct Topology {
  std::vector<CpuCore> cores;  // in hwloc's logical order; without cores that we may not use at all
};

// The machine we run on, restricted to our affinity mask.
Result<Topology> discover_topology();
// From hwloc's synthetic syntax: "package:2 numa:1 l3:8 core:8 pu:2".
Result<Topology> synthetic_topology(const std::string& description);
// Removes the hardware threads that are not in `cpus`, and cores that have none left.
Topology restrict_to(Topology topology, const std::set<int>& cpus);

// The CPUs that we may use: the affinity mask cut by the cgroup's CPU quota (v1 and v2). A CPU is a
// hardware thread.
struct UsableCpus {
  int affinity = 1;    // CPUs in our mask
  double quota = 0;    // CPUs' worth of time the cgroup grants; 0: no limit
  int usable() const;  // the smaller of both, a quota rounded up, >= 1
};
UsableCpus usable_cpus();
// Pure parts, for tests: contents of cpu.max ("200000 100000", "max 100000") or of
// cpu.cfs_quota_us and cpu.cfs_period_us. 0: no limit.
double parse_cpu_max(std::string_view text);
double parse_cfs(std::string_view quota_us, std::string_view period_us);
// The smallest quota on the way from our cgroup up to the root; `memberships` is the contents of
// /proc/self/cgroup, `mount` the folder of the cgroup file systems. A cgroup path that does not
// exist below the mount (a container sees its own cgroup as the root) counts as the root.
double cgroup_quota(const std::string& mount, std::string_view memberships);

// The CPUs of each local rank, ascending. Neighbouring ranks sit together, because a ring's traffic
// is between neighbours. Objects of the policy's kind, in order, are dealt out in equal contiguous
// shares; if there are more ranks than objects, neighbours share one, in proportion to its cores. A
// rank gets all of its object(s), never one core of many for a threaded rank. none: all empty.
std::vector<std::vector<int>> bind_ranks(const Topology& topology, int nproc, BindPolicy policy);

// --report-bindings: a picture of the ranks on the cores, a cell for each core, a line for each
// NUMA node (folded at 100 columns), then each rank's CPUs and a legend. No newlines in the lines.
std::vector<std::string> draw_bindings(const Topology& topology,
                                       const std::vector<std::vector<int>>& cpusets);

}  // namespace dlaunch
