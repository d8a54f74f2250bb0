#include "launcher/node/placement/gpus.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/small_file.h"
#include "launcher/node/placement/pci.h"

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

// "GPU UUID: \t GPU-…" in a file of such lines.
std::string value_of(const std::string& information, std::string_view key) {
  std::size_t at = information.find(key);
  if (at == std::string::npos) return "";
  at = information.find_first_not_of(": \t", at + key.size());
  if (at == std::string::npos) return "";
  const std::size_t end = information.find_first_of("\r\n", at);
  return information.substr(at, end == std::string::npos ? end : end - at);
}

// An instance of a GPU is near the same CPUs as the GPU.
Gpu gpu_at(const std::string& name, const GpuFiles& files) {
  return {name, cpus_in_list(files.local_cpus), files.bridges};
}

std::vector<std::string> entries_of(const std::string& list) {
  std::vector<std::string> entries;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string entry = list.substr(begin, end - begin);
    std::erase(entry, ' ');
    entries.push_back(std::move(entry));
    begin = end + 1;
  }
  return entries;
}

// The GPU that an entry names, by number or by the beginning of its UUID; null: none.
const GpuFiles* named(const std::vector<GpuFiles>& files, const std::string& entry) {
  std::size_t number = 0;
  const char* const end = entry.data() + entry.size();
  if (const auto [rest, error] = std::from_chars(entry.data(), end, number);
      error == std::errc() && rest == end) {
    return number < files.size() ? &files[number] : nullptr;
  }
  if (!entry.starts_with("GPU-")) return nullptr;
  const auto found = std::ranges::find_if(files, [&](const GpuFiles& one) {
    return value_of(one.information, "GPU UUID").starts_with(entry);
  });
  return found == files.end() ? nullptr : &*found;
}

Error needs_names(const GpuFiles& gpu) {
  return Error{.code = Errc::usage,
               .what = fmt::format("GPU {} is divided into MIG instances: name those to use in "
                                   "CUDA_VISIBLE_DEVICES (nvidia-smi -L lists them)",
                                   gpu.bus)};
}

}  // namespace

std::vector<GpuFiles> read_gpu_files(const std::string& root) {
  std::vector<GpuFiles> all;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root + "/proc/driver/nvidia/gpus", none)) {
    GpuFiles one;
    one.bus = entry.path().filename();
    one.information = text_of(entry.path() / "information");
    one.local_cpus = text_of(root + "/sys/bus/pci/devices/" + one.bus + "/local_cpulist");
    one.bridges = bridges_above(one.bus, root);
    one.minor = value_of(one.information, "Device Minor");
    const fs::path instances = root + "/proc/driver/nvidia/capabilities/gpu" + one.minor + "/mig";
    for (const auto& instance : fs::directory_iterator(instances, none)) {
      one.cut = one.cut || instance.path().filename().string().starts_with("gi");
    }
    all.push_back(std::move(one));
  }
  std::ranges::sort(all, [](const GpuFiles& a, const GpuFiles& b) { return a.bus < b.bus; });
  return all;
}

Result<std::vector<Gpu>> usable_gpus(const std::vector<GpuFiles>& files,
                                     const std::optional<std::string>& visible) {
  std::vector<Gpu> gpus;
  if (!visible) {
    for (const GpuFiles& one : files) {
      if (one.cut) return needs_names(one);
      gpus.push_back(gpu_at(value_of(one.information, "GPU UUID"), one));
    }
    return gpus;
  }
  for (const std::string& entry : entries_of(*visible)) {
    if (entry.starts_with("MIG-")) {
      // These files do not say which GPU an instance belongs to, unless there is only one.
      gpus.push_back(files.size() == 1 ? gpu_at(entry, files[0]) : Gpu{entry, {}});
      continue;
    }
    const GpuFiles* const gpu = named(files, entry);
    if (gpu == nullptr) break;
    if (gpu->cut) return needs_names(*gpu);
    gpus.push_back(gpu_at(entry, *gpu));
  }
  return gpus;
}

std::vector<std::vector<int>> bind_to_gpus(const Topology& topology, int nproc,
                                           const std::vector<Gpu>& gpus) {
  std::set<int> usable;
  for (const CpuCore& core : topology.cores) usable.insert(core.cpus.begin(), core.cpus.end());
  std::vector<std::vector<int>> cpusets(static_cast<std::size_t>(nproc));
  for (std::size_t rank = 0; rank < cpusets.size() && !gpus.empty(); ++rank) {
    for (const int cpu : gpus[rank % gpus.size()].cpus) {
      if (usable.contains(cpu)) cpusets[rank].push_back(cpu);
    }
  }
  return cpusets;
}

}  // namespace dlaunch
