#include "launcher/care/gpu_figures.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/field_codec.h"
#include "base/text.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxGpuWord = 200, kMaxGpus = 1024, kMaxGpuProcesses = 4096,
                      kMaxInstances = 64;

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
  return std::any_of(processes.begin(), processes.end(), [&](const GpuProcess& process) {
    return std::find(pids.begin(), pids.end(), process.pid) != pids.end();
  });
}

// These lists of fields serve both directions.
template <class Gpu, class What>
void each_field(Gpu& gpu, const What& what) {
  what(gpu.bus), what(gpu.uuid), what(gpu.lost);
  what(gpu.utilisation), what(gpu.temperature), what(gpu.memory_used), what(gpu.memory_total);
  what(gpu.uncorrected), what(gpu.pages_pending), what(gpu.rows_pending), what(gpu.rows_failed);
}

template <class Instance, class What>
void each_field_of_instance(Instance& instance, const What& what) {
  what(instance.number), what(instance.uuid);
  what(instance.memory_used), what(instance.memory_total);
}

}  // namespace

std::string short_bus(std::string bus) {
  std::transform(bus.begin(), bus.end(), bus.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
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

namespace {

void put_processes(Writer& out, const std::vector<GpuProcess>& processes) {
  out.put(static_cast<std::uint32_t>(processes.size()));
  for (const GpuProcess& process : processes) out.put(process.pid), out.put(process.memory);
}

// Whether there are no more of them than may be.
bool get_processes(Reader& in, std::vector<GpuProcess>& processes) {
  const auto size = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < size && size <= kMaxGpuProcesses && in.ok(); ++i) {
    auto& process = processes.emplace_back();
    process.pid = in.get<std::int32_t>();
    process.memory = in.get<std::uint64_t>();
  }
  return size <= kMaxGpuProcesses;
}

}  // namespace

std::string encode_gpus(const std::vector<GpuFigures>& gpus) {
  Writer out;
  out.put(static_cast<std::uint32_t>(gpus.size()));
  for (const GpuFigures& gpu : gpus) {
    each_field(gpu, PutField{out, kMaxGpuWord});
    put_processes(out, gpu.processes);
    out.put(static_cast<std::uint32_t>(gpu.instances.size()));
    for (const GpuInstance& instance : gpu.instances) {
      each_field_of_instance(instance, PutField{out, kMaxGpuWord});
      put_processes(out, instance.processes);
    }
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
    fits = get_processes(in, gpu.processes);
    const auto instances = in.get<std::uint32_t>();
    fits = fits && instances <= kMaxInstances;
    for (std::uint32_t k = 0; k < instances && fits && in.ok(); ++k) {
      GpuInstance& instance = gpu.instances.emplace_back();
      each_field_of_instance(instance, GetField{in, kMaxGpuWord});
      fits = get_processes(in, instance.processes);
    }
  }
  if (!fits || !in.done()) return Error{.code = Errc::protocol, .what = "malformed GPU figures"};
  return gpus;
}

}  // namespace dlaunch
