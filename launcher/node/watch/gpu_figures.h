// What NVIDIA's management library (NVML) says of a host's GPUs, as plain values; and which of them
// a worker uses. Pure; launcher/node/watch/nvml.h does the queries.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

struct GpuProcess {  // computes on the GPU
  std::int32_t pid = 0;
  std::uint64_t memory = 0;  // bytes; 0: not known
};

// A part of a partitioned GPU (MIG). NVML does not report its utilisation.
struct GpuInstance {
  std::int32_t number = 0;                          // of that GPU
  std::string uuid;                                 // "MIG-…"
  std::uint64_t memory_used = 0, memory_total = 0;  // bytes
  std::vector<GpuProcess> processes;
};

// Numbers below 0: the GPU does not have or report the value.
struct GpuFigures {
  std::string bus;       // "0000:17:00.0"
  std::string uuid;      // "GPU-…"
  std::string lost;      // why it no longer answers, in NVML's words; "": it does
  int utilisation = -1;  // percent of the last moments in which it computed
  int temperature = -1;  // °C
  std::uint64_t memory_used = 0, memory_total = 0;  // bytes
  std::int64_t uncorrected = -1;                    // ECC errors since the driver was loaded
  bool pages_pending = false;                       // pages to be retired at the next reset
  bool rows_pending = false;                        // rows to be remapped then
  bool rows_failed = false;                         // a row could not be remapped
  std::vector<GpuProcess> processes;
  std::vector<GpuInstance> instances;
};

// "00000000:17:00.0" as the kernel's files write it.
std::string short_bus(std::string bus);

// A GPU, or an instance of it.
struct GpuUse {
  std::size_t gpu = 0;  // index into the list
  std::optional<std::size_t> instance = {};
  auto operator<=>(const GpuUse&) const = default;
};

// The GPUs that CUDA_VISIBLE_DEVICES names, by number (in the order of the bus) or by the beginning
// of the UUID; as in CUDA up to the first invalid entry.
std::vector<GpuUse> gpus_named(const std::vector<GpuFigures>& gpus, std::string_view visible);

// The GPUs on which one of these processes computes. If NVML shows none of the processes (as from
// within a container): the GPU that `visible` names, if it names exactly one. `visible` also tells
// the instance if NVML shows the processes of the whole GPU only.
std::vector<GpuUse> gpus_of(const std::vector<GpuFigures>& gpus, const std::vector<int>& pids,
                            std::string_view visible);

// The format between the process that queries NVML and its reader.
std::string encode_gpus(const std::vector<GpuFigures>& gpus);
Result<std::vector<GpuFigures>> decode_gpus(std::string_view bytes);

}  // namespace dlaunch
