// The GPUs of this host, as the driver's and the kernel's files tell of them, and who sits near
// which. No library of NVIDIA's is loaded into an agent: a process of its own asks NVML
// (launcher/monitor/gpu_watch.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "launcher/placement/topology.h"

namespace dlaunch {

struct Gpu {
  std::string name;  // for CUDA_VISIBLE_DEVICES: "GPU-…", "MIG-…", or the number that is there
  std::vector<int> cpus;                  // near it, ascending; empty: not known
  std::vector<std::string> bridges = {};  // as GpuFiles
};

// What the files say of one.
struct GpuFiles {
  std::string bus;          // "0000:17:00.0"
  std::string information;  // contents of /proc/driver/nvidia/gpus/BUS/information
  std::string local_cpus;   // of /sys/bus/pci/devices/BUS/local_cpulist; "": there is none
  bool cut = false;         // into MIG instances
  std::vector<std::string> bridges = {};  // above it on the PCI bus (launcher/placement/pci.h)
  std::string minor = "";                 // N of /dev/nvidiaN
};
// Below `root` ("" is the machine's own), by bus.
std::vector<GpuFiles> read_gpu_files(const std::string& root = "");

// Those that programs see, in their order: all of them, or what CUDA_VISIBLE_DEVICES (`visible`)
// names, by number, by UUID or its beginning, or as MIG instances. As in CUDA its list ends at the
// first entry that is none. Errc::usage: an instance has to be named there and is not. Pure.
Result<std::vector<Gpu>> usable_gpus(const std::vector<GpuFiles>& files,
                                     const std::optional<std::string>& visible);

// The CPUs of each local rank: those near its GPU, which is the one of that number, and from the
// first again where there are more ranks. Empty where they are not known. Pure.
std::vector<std::vector<int>> bind_to_gpus(const Topology& topology, int nproc,
                                           const std::vector<Gpu>& gpus);

}  // namespace dlaunch
