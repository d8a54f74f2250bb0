#include "launcher/node/watch/gpu_figures.h"

#include <algorithm>
#include <charconv>

#include "base/record.h"
#include "base/text.h"

namespace dlaunch {
namespace {

constexpr RecordLimits kGpuLimits{.text = 200, .items = 4096, .escapes = true};

std::optional<GpuUse> gpu_named(const std::vector<GpuFigures>& gpus, std::string_view entry) {
  std::size_t number = 0;
  const char* const end = entry.data() + entry.size();
  const auto [rest, error] = std::from_chars(entry.data(), end, number);
  if (error == std::errc() && rest == end) {
    return number < gpus.size() ? std::optional(GpuUse{number}) : std::nullopt;
  }
  const bool of_gpu = entry.starts_with("GPU-"), of_instance = entry.starts_with("MIG-");
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (of_gpu && gpus[i].uuid.starts_with(entry)) return GpuUse{i};
    const auto& all = gpus[i].instances;
    for (std::size_t k = 0; k < all.size() && of_instance; ++k) {
      if (all[k].uuid.starts_with(entry)) return GpuUse{i, k};
    }
  }
  return std::nullopt;
}

bool has_one_of(const std::vector<GpuProcess>& processes, const std::vector<int>& pids) {
  return std::ranges::any_of(processes, [&](const GpuProcess& process) {
    return std::ranges::find(pids, process.pid) != pids.end();
  });
}

}  // namespace

std::string short_bus(std::string bus) {
  bus = lower_case(bus);
  const auto domain = bus.find(':');
  return domain != bus.npos && domain > 4 ? bus.substr(domain - 4) : bus;
}

std::vector<GpuUse> gpus_named(const std::vector<GpuFigures>& gpus, std::string_view visible) {
  std::vector<GpuUse> found;
  for (const std::string_view word : split_words(visible, ',')) {
    std::string entry(word);
    std::erase(entry, ' ');
    const auto named = gpu_named(gpus, entry);
    if (!named) break;
    found.push_back(*named);
  }
  return found;
}

std::vector<GpuUse> gpus_of(const std::vector<GpuFigures>& gpus, const std::vector<int>& pids,
                            std::string_view visible) {
  const auto named = gpus_named(gpus, visible);
  const std::optional only = named.size() == 1 ? std::optional(named.front()) : std::nullopt;
  std::vector<GpuUse> found;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const auto before = found.size();
    const auto& all = gpus[i].instances;
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (has_one_of(all[k].processes, pids)) found.push_back({i, k});
    }
    if (found.size() > before || !has_one_of(gpus[i].processes, pids)) continue;
    found.push_back(only && only->gpu == i ? *only : GpuUse{i});
  }
  if (found.empty() && only) found.push_back(*only);
  return found;
}

std::string encode_gpus(const std::vector<GpuFigures>& gpus) {
  return encode_record(gpus, kGpuLimits);
}

Result<std::vector<GpuFigures>> decode_gpus(std::string_view bytes) {
  std::vector<GpuFigures> gpus;
  if (decode_record(bytes, gpus, kGpuLimits)) return gpus;
  return Error{.code = Errc::protocol, .what = "malformed GPU figures"};
}

}  // namespace dlaunch
