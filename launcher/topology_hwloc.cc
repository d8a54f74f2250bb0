#include <sched.h>

#include <memory>
#include <set>

#include <hwloc.h>

#include "launcher/topology.h"

namespace dlaunch {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using TopologyPtr = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using BitmapPtr = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

Result<TopologyPtr> init() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return errno_error("hwloc: make a topology", errno);
  return TopologyPtr(raw);
}

std::set<int> members(hwloc_const_bitmap_t bitmap) {
  std::set<int> cpus;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    cpus.insert(cpu);
  }
  return cpus;
}

// The logical index of the core's ancestor of that type; `otherwise` where the machine shows none.
int index_of(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_obj_t core, int otherwise) {
  const auto ancestor = hwloc_get_ancestor_obj_by_type(topology, type, core);
  return ancestor != nullptr ? static_cast<int>(ancestor->logical_index) : otherwise;
}

// Memory is no ancestor of a core in hwloc 2 but hangs beside it; the nodeset is the way there.
int numa_of(hwloc_topology_t topology, hwloc_obj_t core) {
  const int os_index = hwloc_bitmap_first(core->nodeset);
  if (os_index < 0) return 0;
  const auto node = hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(os_index));
  return node != nullptr ? static_cast<int>(node->logical_index) : 0;
}

Topology to_value(hwloc_topology_t topology) {
  // Some virtual machines show CPUs without cores.
  const auto type =
      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  Topology value;
  for (hwloc_obj_t core = hwloc_get_next_obj_by_type(topology, type, nullptr); core != nullptr;
       core = hwloc_get_next_obj_by_type(topology, type, core)) {
    Core one;
    const auto cpus = members(core->cpuset);
    one.cpus.assign(cpus.begin(), cpus.end());
    one.socket = index_of(topology, HWLOC_OBJ_PACKAGE, core, 0);
    one.numa = numa_of(topology, core);
    one.l3 = index_of(topology, HWLOC_OBJ_L3CACHE, core, one.socket);
    value.cores.push_back(std::move(one));
  }
  return value;
}

Result<Topology> load(hwloc_topology_t topology, const std::string& what) {
  if (hwloc_topology_load(topology) != 0) return errno_error("hwloc: " + what, errno);
  Topology value = to_value(topology);
  if (value.cores.empty()) {
    return Error{.code = Errc::unsupported, .what = "hwloc: " + what + ": it shows no cores"};
  }
  return value;
}

}  // namespace

Result<Topology> discover_topology() {
  auto topology = init();
  if (!topology) return topology.error();
  const auto raw = topology->get();
  // It would move us over every CPU in turn to ask each one; the kernel's files know enough.
  hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  auto value = load(raw, "discover this machine's cores");
  if (!value) return value.error();
  const BitmapPtr ours(hwloc_bitmap_alloc());
  if (ours == nullptr || hwloc_get_cpubind(raw, ours.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    return value;
  }
  return restrict_to(std::move(*value), members(ours.get()));
}

Result<Topology> synthetic_topology(const std::string& description) {
  auto topology = init();
  if (!topology) return topology.error();
  if (hwloc_topology_set_synthetic(topology->get(), description.c_str()) != 0) {
    return Error{.code = Errc::usage, .what = "hwloc: '" + description + "' is not a topology"};
  }
  return load(topology->get(), "load '" + description + "'");
}

}  // namespace dlaunch
