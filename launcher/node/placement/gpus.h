// The GPUs of this host by the driver's and the kernel's files, and the CPUs and bridges near each.
// Agents load no library of NVIDIA's: a process of its own asks NVML
// (launcher/node/watch/gpu_watch.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/node/placement/topology.h"

namespace dlaunch {

struct Gpu {
  std::string name;       // for CUDA_VISIBLE_DEVICES: "GPU-…", "MIG-…", or its number there
  std::vector<int> cpus;  // near it, ascending; empty: not known
  std::vector<std::string> bridges = {};  // as GpuFiles
};

// One GPU in the files.
struct GpuFiles {
  std::string bus;          // "0000:17:00.0"
  std::string information;  // contents of /proc/driver/nvidia/gpus/BUS/information
  std::string local_cpus;   // of /sys/bus/pci/devices/BUS/local_cpulist; "": there is none
  bool cut = false;         // partitioned into MIG instances
  std::vector<std::string> bridges = {};  // above it on the PCI bus (launcher/node/placement/pci.h)
  std::string minor = "";                 // N of /dev/nvidiaN
};
// Below `root` ("" is the machine's own), by bus.
std::vector<GpuFiles> read_gpu_files(const std::string& root = "");

// The GPUs that programs see, in their order: all, or those that CUDA_VISIBLE_DEVICES (`visible`)
// names, by number, by UUID or its beginning, or as MIG instances. As in CUDA its list ends at the
// first invalid entry. Errc::usage: an instance must be named there but is not. Pure.
Result<std::vector<Gpu>> usable_gpus(const std::vector<GpuFiles>& files,
                                     const std::optional<std::string>& visible);

// The CPUs of each local rank: those near the GPU with its number; with more ranks than GPUs the
// numbering starts over. Empty if they are not known. Pure.
std::vector<std::vector<int>> bind_to_gpus(const Topology& topology, int nproc,
                                           const std::vector<Gpu>& gpus);

}  // namespace dlaunch
