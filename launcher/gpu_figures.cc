#include "launcher/gpu_figures.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/field_codec.h"
#include "base/text.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxGpuWord = 200, kMaxGpus = 1024, kMaxGpuProcesses = 4096;

std::size_t gpu_named(const std::vector<GpuFigures>& gpus, std::string_view entry) {
  std::size_t number = 0;
  const char* const end = entry.data() + entry.size();
  const auto [rest, error] = std::from_chars(entry.data(), end, number);
  if (error == std::errc() && rest == end) return number;
  if (!entry.starts_with("GPU-")) return gpus.size();
  const auto found = std::find_if(
      gpus.begin(), gpus.end(), [&](const GpuFigures& gpu) { return gpu.uuid.starts_with(entry); });
  return static_cast<std::size_t>(found - gpus.begin());
}

// One list of fields serves both directions.
template <class Gpu, class What>
void each_field(Gpu& gpu, const What& what) {
  what(gpu.bus), what(gpu.uuid), what(gpu.lost);
  what(gpu.utilisation), what(gpu.temperature), what(gpu.memory_used), what(gpu.memory_total);
  what(gpu.uncorrected), what(gpu.pages_pending), what(gpu.rows_pending), what(gpu.rows_failed);
}

}  // namespace

std::string short_bus(std::string bus) {
  std::transform(bus.begin(), bus.end(), bus.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto domain = bus.find(':');
  return domain != bus.npos && domain > 4 ? bus.substr(domain - 4) : bus;
}

std::vector<std::size_t> gpus_named(const std::vector<GpuFigures>& gpus, std::string_view visible) {
  std::vector<std::size_t> found;
  for (const std::string_view word : split_words(visible, ',')) {
    std::string entry(word);
    std::erase(entry, ' ');
    const std::size_t gpu = gpu_named(gpus, entry);
    if (gpu >= gpus.size()) break;
    found.push_back(gpu);
  }
  return found;
}

std::vector<std::size_t> gpus_of(const std::vector<GpuFigures>& gpus, const std::vector<int>& pids,
                                 std::string_view visible) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const auto& all = gpus[i].processes;
    const bool ours = std::any_of(all.begin(), all.end(), [&](const GpuProcess& process) {
      return std::find(pids.begin(), pids.end(), process.pid) != pids.end();
    });
    if (ours) found.push_back(i);
  }
  if (!found.empty()) return found;
  found = gpus_named(gpus, visible);
  return found.size() == 1 ? found : std::vector<std::size_t>();
}

std::string encode_gpus(const std::vector<GpuFigures>& gpus) {
  Writer out;
  out.put(static_cast<std::uint32_t>(gpus.size()));
  for (const GpuFigures& gpu : gpus) {
    each_field(gpu, PutField{out, kMaxGpuWord});
    out.put(static_cast<std::uint32_t>(gpu.processes.size()));
    for (const GpuProcess& process : gpu.processes) out.put(process.pid), out.put(process.memory);
  }
  return out.take();
}

Result<std::vector<GpuFigures>> decode_gpus(std::string_view bytes) {
  Reader in(bytes);
  std::vector<GpuFigures> gpus;
  const auto size = in.get<std::uint32_t>();
  bool fits = size <= kMaxGpus;
  for (std::uint32_t i = 0; i < size && fits && in.ok(); ++i) {
    GpuFigures& gpu = gpus.emplace_back();
    each_field(gpu, GetField{in, kMaxGpuWord});
    const auto processes = in.get<std::uint32_t>();
    fits = processes <= kMaxGpuProcesses;
    for (std::uint32_t k = 0; k < processes && fits && in.ok(); ++k) {
      auto& process = gpu.processes.emplace_back();
      process.pid = in.get<std::int32_t>();
      process.memory = in.get<std::uint64_t>();
    }
  }
  if (!fits || !in.done()) return Error{.code = Errc::protocol, .what = "malformed GPU figures"};
  return gpus;
}

}  // namespace dlaunch
