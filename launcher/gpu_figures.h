// What NVIDIA's management library (NVML) tells of the GPUs of a host, as plain values; and which
// of them a worker uses. Pure; launcher/nvml.h asks for them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

struct GpuProcess {  // that computes there
  std::int32_t pid = 0;
  std::uint64_t memory = 0;  // bytes; 0: not known
};

// Numbers below 0: the GPU does not have it, or does not tell.
struct GpuFigures {
  std::string bus;       // "0000:17:00.0"
  std::string uuid;      // "GPU-…"
  std::string lost;      // why it does not answer any more, in NVML's words; "": it does
  int utilisation = -1;  // percent of the last moments in which it computed
  int temperature = -1;  // °C
  std::uint64_t memory_used = 0, memory_total = 0;  // bytes
  std::int64_t uncorrected = -1;                    // ECC errors since the driver was loaded
  bool pages_pending = false;  // pages that are to be retired at the next reset
  bool rows_pending = false;   // rows that are to be remapped then
  bool rows_failed = false;    // a row could not be remapped
  std::vector<GpuProcess> processes;
};

// "00000000:17:00.0" as it stands in the kernel's files.
std::string short_bus(std::string bus);

// Those that CUDA_VISIBLE_DEVICES names, by number (in the order of the bus) or by the beginning of
// the UUID; as in CUDA up to the first entry that is none.
std::vector<std::size_t> gpus_named(const std::vector<GpuFigures>& gpus, std::string_view visible);

// Those that one of these processes computes on; where NVML shows none of them (as from within a
// container), the one that `visible` names, if it is one.
std::vector<std::size_t> gpus_of(const std::vector<GpuFigures>& gpus, const std::vector<int>& pids,
                                 std::string_view visible);

// From the process that asks NVML to who wants to know.
std::string encode_gpus(const std::vector<GpuFigures>& gpus);
Result<std::vector<GpuFigures>> decode_gpus(std::string_view bytes);

}  // namespace dlaunch
