#include <algorithm>
#include <map>

#include "launcher/node/placement/topology.h"

namespace dlaunch {
namespace {

// Objects of the policy's kind as lists of indices into Topology::cores, in logical order.
std::vector<std::vector<std::size_t>> objects_of(const Topology& topology, BindPolicy policy) {
  std::map<int, std::vector<std::size_t>> by_index;
  for (std::size_t i = 0; i < topology.cores.size(); ++i) {
    const CpuCore& core = topology.cores[i];
    int index = static_cast<int>(i);
    if (policy == BindPolicy::l3) index = core.l3;
    if (policy == BindPolicy::numa) index = core.numa;
    if (policy == BindPolicy::socket) index = core.socket;
    by_index[index].push_back(i);
  }
  std::vector<std::vector<std::size_t>> objects;
  objects.reserve(by_index.size());
  for (auto& [index, cores] : by_index) objects.push_back(std::move(cores));
  return objects;
}

// The objects [first, last) of one rank.
struct Share {
  std::size_t first = 0;
  std::size_t last = 0;
};

Share share_of(std::size_t rank, std::size_t nproc,
               const std::vector<std::vector<std::size_t>>& objects, std::size_t cores) {
  const std::size_t count = objects.size();
  if (nproc <= count) return {rank * count / nproc, (rank + 1) * count / nproc};
  // The object that holds the core in the middle of this rank's share of all cores.
  std::size_t middle = (2 * rank + 1) * cores / (2 * nproc);
  std::size_t object = 0;
  while (middle >= objects[object].size()) middle -= objects[object++].size();
  return {object, object + 1};
}

}  // namespace

Topology restrict_to(Topology topology, const std::set<int>& cpus) {
  for (CpuCore& core : topology.cores) {
    std::erase_if(core.cpus, [&](int cpu) { return !cpus.contains(cpu); });
  }
  std::erase_if(topology.cores, [](const CpuCore& core) { return core.cpus.empty(); });
  return topology;
}

std::vector<std::vector<int>> bind_ranks(const Topology& topology, int nproc, BindPolicy policy) {
  std::vector<std::vector<int>> cpusets(static_cast<std::size_t>(nproc));
  if (policy == BindPolicy::none || topology.cores.empty()) return cpusets;
  const auto objects = objects_of(topology, policy);
  for (std::size_t rank = 0; rank < cpusets.size(); ++rank) {
    const Share share = share_of(rank, cpusets.size(), objects, topology.cores.size());
    for (std::size_t object = share.first; object < share.last; ++object) {
      for (const std::size_t core : objects[object]) {
        const auto& cpus = topology.cores[core].cpus;
        cpusets[rank].insert(cpusets[rank].end(), cpus.begin(), cpus.end());
      }
    }
    std::ranges::sort(cpusets[rank]);
  }
  return cpusets;
}

}  // namespace dlaunch
