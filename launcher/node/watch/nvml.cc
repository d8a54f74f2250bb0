#include "launcher/node/watch/nvml.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/symbols.h"

namespace dlaunch {
namespace {

// -- The part of NVML's interface that is used here

using NvmlDevice = void*;
constexpr int kNvmlSuccess = 0, kNvmlNoPermission = 4, kNvmlTooSmall = 7, kNvmlLost = 15;
constexpr int kNvmlCoreTemperature = 0;                 // NVML_TEMPERATURE_GPU
constexpr int kNvmlUncorrected = 1, kNvmlVolatile = 0;  // kinds of ECC errors, and of counters

struct NvmlUtilisation {
  unsigned gpu, memory;
};
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlPci {
  char legacy_bus[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(NvmlPci) == 68 && sizeof(NvmlProcess) == 24);

struct Nvml {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*count)(unsigned*);
  int (*handle)(unsigned, NvmlDevice*);
  int (*uuid)(NvmlDevice, char*, unsigned);
  int (*pci)(NvmlDevice, NvmlPci*);
  int (*utilisation)(NvmlDevice, NvmlUtilisation*);
  int (*memory)(NvmlDevice, NvmlMemory*);
  int (*temperature)(NvmlDevice, int sensor, unsigned*);
  int (*ecc_errors)(NvmlDevice, int kind, int counter, unsigned long long*);
  // Older libraries lack these.
  int (*pages_pending)(NvmlDevice, int*);
  int (*rows)(NvmlDevice, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
              unsigned* failed);
  int (*processes)(NvmlDevice, unsigned* count, NvmlProcess*);
  int (*most_instances)(NvmlDevice, unsigned*);
  int (*instance)(NvmlDevice, unsigned, NvmlDevice*);
};

Result<Nvml> load_nvml() {
  SymbolReader symbols{.library = open_library("libnvidia-ml.so.1")};
  if (symbols.library == nullptr) {
    return Error{.code = Errc::unsupported, .what = "there is no libnvidia-ml.so.1"};
  }
  Nvml nvml{};
  symbols.read(nvml.init, "nvmlInit_v2");
  symbols.read(nvml.shutdown, "nvmlShutdown");
  symbols.read(nvml.error_string, "nvmlErrorString");
  symbols.read(nvml.count, "nvmlDeviceGetCount_v2");
  symbols.read(nvml.handle, "nvmlDeviceGetHandleByIndex_v2");
  symbols.read(nvml.uuid, "nvmlDeviceGetUUID");
  symbols.read(nvml.pci, "nvmlDeviceGetPciInfo_v3");
  symbols.read(nvml.utilisation, "nvmlDeviceGetUtilizationRates");
  symbols.read(nvml.memory, "nvmlDeviceGetMemoryInfo");
  symbols.read(nvml.temperature, "nvmlDeviceGetTemperature");
  symbols.read(nvml.ecc_errors, "nvmlDeviceGetTotalEccErrors");
  if (symbols.missing != nullptr) {
    return Error{.code = Errc::unsupported, .what = "libnvidia-ml.so.1 is too old"};
  }
  symbols.read_optional(nvml.pages_pending, "nvmlDeviceGetRetiredPagesPendingStatus");
  symbols.read_optional(nvml.rows, "nvmlDeviceGetRemappedRows");
  symbols.read_optional(nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  symbols.read_optional(nvml.most_instances, "nvmlDeviceGetMaxMigDeviceCount");
  symbols.read_optional(nvml.instance, "nvmlDeviceGetMigDeviceHandleByIndex");
  return nvml;
}

// One GPU. A figure that it does not have stays as it is in GpuFigures.
class Asked {
 public:
  Asked(const Nvml& nvml, GpuFigures& gpu) : nvml_(nvml), gpu_(gpu) {}

  void ask(unsigned index) {
    NvmlDevice device = nullptr;
    gpu_.bus = fmt::format("number {}", index);
    const int result = nvml_.handle(index, &device);
    others_ = result == kNvmlNoPermission;
    if (!told(result)) {
      if (gpu_.lost.empty()) gpu_.lost = "it has no handle";
      return;
    }
    ask_names(device);
    ask_figures(device);
    ask_health(device);
    gpu_.processes = processes_of(device);
    if (nvml_.most_instances != nullptr && nvml_.instance != nullptr) ask_instances(device);
  }

  // It exists, but is not for us.
  bool others() const { return others_; }

 private:
  bool told(int result) {
    if (result == kNvmlLost) gpu_.lost = nvml_.error_string(result);
    return result == kNvmlSuccess;
  }

  void ask_names(NvmlDevice device) {
    NvmlPci pci{};
    if (told(nvml_.pci(device, &pci))) {
      pci.bus_id[sizeof pci.bus_id - 1] = '\0';
      gpu_.bus = short_bus(pci.bus_id);
    }
    gpu_.uuid = uuid_of(device);
  }

  std::string uuid_of(NvmlDevice device) {
    char uuid[96] = {};
    return told(nvml_.uuid(device, uuid, sizeof uuid - 1)) ? uuid : "";
  }

  void ask_figures(NvmlDevice device) {
    NvmlUtilisation utilisation{};
    if (told(nvml_.utilisation(device, &utilisation)))
      gpu_.utilisation = static_cast<int>(utilisation.gpu);
    ask_memory(device, gpu_);
    unsigned temperature = 0;
    if (told(nvml_.temperature(device, kNvmlCoreTemperature, &temperature)))
      gpu_.temperature = static_cast<int>(temperature);
  }

  // For a GPU or an instance.
  template <class Figures>
  void ask_memory(NvmlDevice device, Figures& figures) {
    NvmlMemory memory{};
    if (!told(nvml_.memory(device, &memory))) return;
    figures.memory_used = memory.used;
    figures.memory_total = memory.total;
  }

  // NVML takes an instance's handle for its name, memory and processes.
  void ask_instances(NvmlDevice device) {
    unsigned most = 0;
    if (!told(nvml_.most_instances(device, &most))) return;
    for (unsigned number = 0; number < most; ++number) {
      NvmlDevice handle = nullptr;
      if (!told(nvml_.instance(device, number, &handle))) continue;  // none with that number
      auto& instance = gpu_.instances.emplace_back();
      instance.number = static_cast<std::int32_t>(number);
      instance.uuid = uuid_of(handle);
      ask_memory(handle, instance);
      instance.processes = processes_of(handle);
    }
  }

  void ask_health(NvmlDevice device) {
    unsigned long long errors = 0;
    if (told(nvml_.ecc_errors(device, kNvmlUncorrected, kNvmlVolatile, &errors)))
      gpu_.uncorrected = static_cast<std::int64_t>(errors);
    int pages = 0;
    if (nvml_.pages_pending != nullptr && told(nvml_.pages_pending(device, &pages)))
      gpu_.pages_pending = pages != 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (nvml_.rows != nullptr &&
        told(nvml_.rows(device, &corrected, &uncorrected, &pending, &failed))) {
      gpu_.rows_pending = pending != 0;
      gpu_.rows_failed = failed != 0;
    }
  }

  std::vector<GpuProcess> processes_of(NvmlDevice device) {
    std::vector<GpuProcess> found;
    if (nvml_.processes == nullptr) return found;
    std::vector<NvmlProcess> all(64);
    auto count = static_cast<unsigned>(all.size());
    int result = nvml_.processes(device, &count, all.data());
    if (result == kNvmlTooSmall) {
      all.resize(count + 64);  // new ones may appear meanwhile
      count = static_cast<unsigned>(all.size());
      result = nvml_.processes(device, &count, all.data());
    }
    if (!told(result)) return found;
    for (unsigned i = 0; i < count; ++i) {
      const bool known = all[i].memory != ~0ULL;
      found.push_back({static_cast<std::int32_t>(all[i].pid), known ? all[i].memory : 0});
    }
    return found;
  }

  const Nvml& nvml_;
  GpuFigures& gpu_;
  bool others_ = false;
};

}  // namespace

Result<std::vector<GpuFigures>> ask_nvml() {
  const auto nvml = load_nvml();
  if (!nvml) return nvml.error();
  const auto error = [&](const char* call, int result) {
    return Error{.code = Errc::io, .what = fmt::format("{}: {}", call, nvml->error_string(result))};
  };
  if (const int result = nvml->init(); result != kNvmlSuccess) return error("nvmlInit", result);
  std::vector<GpuFigures> gpus;
  unsigned count = 0;
  const int result = nvml->count(&count);
  for (unsigned i = 0; i < count && result == kNvmlSuccess; ++i) {
    Asked asked(*nvml, gpus.emplace_back());
    asked.ask(i);
    if (asked.others()) gpus.pop_back();
  }
  nvml->shutdown();
  if (result != kNvmlSuccess) return error("nvmlDeviceGetCount", result);
  std::ranges::stable_sort(gpus,
                           [](const GpuFigures& a, const GpuFigures& b) { return a.bus < b.bus; });
  return gpus;
}

}  // namespace dlaunch
