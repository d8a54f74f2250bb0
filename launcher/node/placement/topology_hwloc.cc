#include <memory>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <hwloc.h>

#include "base/symbols.h"
#include "launcher/node/placement/topology.h"

namespace dlaunch {
namespace {

// -- The functions of hwloc, found at run time because only binding needs them; inline ones are
// linked.

struct Hwloc {
  decltype(&::hwloc_topology_init) topology_init;
  decltype(&::hwloc_topology_destroy) topology_destroy;
  decltype(&::hwloc_topology_set_components) topology_set_components;
  decltype(&::hwloc_topology_set_synthetic) topology_set_synthetic;
  decltype(&::hwloc_topology_load) topology_load;
  decltype(&::hwloc_get_cpubind) get_cpubind;
  decltype(&::hwloc_get_type_depth) get_type_depth;
  decltype(&::hwloc_get_nbobjs_by_depth) get_nbobjs_by_depth;
  decltype(&::hwloc_get_obj_by_depth) get_obj_by_depth;
  decltype(&::hwloc_bitmap_alloc) bitmap_alloc;
  decltype(&::hwloc_bitmap_free) bitmap_free;
  decltype(&::hwloc_bitmap_first) bitmap_first;
  decltype(&::hwloc_bitmap_next) bitmap_next;
};

const Hwloc* lib = nullptr;  // since load_hwloc()

Result<void> load_hwloc() {
  static Hwloc hwloc{};
  SymbolReader symbols{.library = open_library("libhwloc.so.15")};
  if (symbols.library == nullptr) {
    return Error{
        .code = Errc::unsupported,
        .what = "finding this machine's cores needs libhwloc.so.15, which is not installed"};
  }
  symbols.read(hwloc.topology_init, "hwloc_topology_init");
  symbols.read(hwloc.topology_destroy, "hwloc_topology_destroy");
  symbols.read(hwloc.topology_set_components, "hwloc_topology_set_components");
  symbols.read(hwloc.topology_set_synthetic, "hwloc_topology_set_synthetic");
  symbols.read(hwloc.topology_load, "hwloc_topology_load");
  symbols.read(hwloc.get_cpubind, "hwloc_get_cpubind");
  symbols.read(hwloc.get_type_depth, "hwloc_get_type_depth");
  symbols.read(hwloc.get_nbobjs_by_depth, "hwloc_get_nbobjs_by_depth");
  symbols.read(hwloc.get_obj_by_depth, "hwloc_get_obj_by_depth");
  symbols.read(hwloc.bitmap_alloc, "hwloc_bitmap_alloc");
  symbols.read(hwloc.bitmap_free, "hwloc_bitmap_free");
  symbols.read(hwloc.bitmap_first, "hwloc_bitmap_first");
  symbols.read(hwloc.bitmap_next, "hwloc_bitmap_next");
  if (symbols.missing != nullptr) {
    return Error{.code = Errc::unsupported,
                 .what = fmt::format("libhwloc.so.15 lacks {}", symbols.missing)};
  }
  lib = &hwloc;
  return {};
}

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { lib->topology_destroy(topology); }
};
using TopologyPtr = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { lib->bitmap_free(bitmap); }
};
using BitmapPtr = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

Result<TopologyPtr> init() {
  if (auto ok = load_hwloc(); !ok) return ok.error();
  hwloc_topology_t raw = nullptr;
  if (lib->topology_init(&raw) != 0) return errno_error("hwloc: make a topology", errno);
  return TopologyPtr(raw);
}

std::set<int> members(hwloc_const_bitmap_t bitmap) {
  std::set<int> cpus;
  for (int cpu = lib->bitmap_first(bitmap); cpu >= 0; cpu = lib->bitmap_next(bitmap, cpu)) {
    cpus.insert(cpu);
  }
  return cpus;
}

std::vector<hwloc_obj_t> all_of_type(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const int depth = lib->get_type_depth(topology, type);
  std::vector<hwloc_obj_t> all;
  for (unsigned i = 0; i < lib->get_nbobjs_by_depth(topology, depth); ++i) {
    all.push_back(lib->get_obj_by_depth(topology, depth, i));
  }
  return all;
}

// The logical index of the core's ancestor of that type; `otherwise` if the machine shows none.
int index_of(hwloc_obj_type_t type, hwloc_obj_t core, int otherwise) {
  hwloc_obj_t ancestor = core->parent;
  while (ancestor != nullptr && ancestor->type != type) ancestor = ancestor->parent;
  return ancestor != nullptr ? static_cast<int>(ancestor->logical_index) : otherwise;
}

// In hwloc 2 memory is no ancestor of a core but hangs beside it; the nodeset leads to it.
int numa_of(const std::vector<hwloc_obj_t>& nodes, hwloc_obj_t core) {
  const int os_index = lib->bitmap_first(core->nodeset);
  if (os_index < 0) return 0;
  for (const hwloc_obj_t node : nodes) {
    if (static_cast<int>(node->os_index) == os_index) return static_cast<int>(node->logical_index);
  }
  return 0;
}

Topology to_value(hwloc_topology_t topology) {
  auto cores = all_of_type(topology, HWLOC_OBJ_CORE);
  // Some virtual machines show CPUs without cores.
  if (cores.empty()) cores = all_of_type(topology, HWLOC_OBJ_PU);
  const auto nodes = all_of_type(topology, HWLOC_OBJ_NUMANODE);
  Topology value;
  for (const hwloc_obj_t core : cores) {
    CpuCore one;
    const auto cpus = members(core->cpuset);
    one.cpus.assign(cpus.begin(), cpus.end());
    one.socket = index_of(HWLOC_OBJ_PACKAGE, core, 0);
    one.numa = numa_of(nodes, core);
    one.l3 = index_of(HWLOC_OBJ_L3CACHE, core, one.socket);
    value.cores.push_back(std::move(one));
  }
  return value;
}

Result<Topology> load(hwloc_topology_t topology, const std::string& what) {
  if (lib->topology_load(topology) != 0) return errno_error("hwloc: " + what, errno);
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
  // hwloc would move us over every CPU in turn to ask each one; the kernel's files know enough.
  lib->topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  auto value = load(raw, "discover this machine's cores");
  if (!value) return value.error();
  const BitmapPtr ours(lib->bitmap_alloc());
  if (ours == nullptr || lib->get_cpubind(raw, ours.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    return value;
  }
  return restrict_to(std::move(*value), members(ours.get()));
}

Result<Topology> synthetic_topology(const std::string& description) {
  auto topology = init();
  if (!topology) return topology.error();
  if (lib->topology_set_synthetic(topology->get(), description.c_str()) != 0) {
    return Error{.code = Errc::usage, .what = "hwloc: '" + description + "' is not a topology"};
  }
  return load(topology->get(), "load '" + description + "'");
}

}  // namespace dlaunch
