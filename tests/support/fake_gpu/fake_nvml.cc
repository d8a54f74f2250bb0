// An imitation of libnvidia-ml.so.1, for tests only and never installed. Its values say nothing
// about a GPU.
//
// FAKE_NVML="gpus=2,KEY=GPU:VALUE,…", read at each call: the number of GPUs, and values of each by
// its number (their buses are 10 and up):
//   uncorrected=1:3   so many ECC errors      lost=1           it has fallen off the bus
//   pages_pending=1, rows_pending=1, rows_failed=1             as in NVML
//   process=1:4711    a process that computes there
//   mig=1:2           it is cut into so many instances, 0 and 2 and so on; it reports its load no
//                     longer, and process= is that of its last instance
// "dead": nothing works; "hang": no call returns while there is a file FAKE_NVML_HANGS, or at all
// if there is no such variable.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kDone = 0, kNotSupported = 3, kNotFound = 6, kNotLoaded = 9, kLost = 15;

// The value of KEY for that GPU; otherwise: KEY is not set for it.
long commanded(const char* key, long gpu, long otherwise) {
  const char* const all = std::getenv("FAKE_NVML");
  const std::string list = "," + std::string(all != nullptr ? all : "") + ",";
  const std::string item = "," + std::string(key) + (gpu < 0 ? "=" : "=" + std::to_string(gpu));
  for (std::size_t at = list.find(item); at != list.npos; at = list.find(item, at + 1)) {
    const char* const rest = list.c_str() + at + item.size();
    if (gpu < 0) return std::atol(rest);
    if (*rest == ':') return std::atol(rest + 1);
    if (*rest == ',') return 1;
  }
  return otherwise;
}

bool says(const char* word) {
  const char* const all = std::getenv("FAKE_NVML");
  return all != nullptr && std::strstr(all, word) != nullptr;
}

// Handles are 1 and up; for instance K of a GPU: 100 (K + 1) more.
long handle_of(void* device) { return reinterpret_cast<long>(device) - 1; }
long number_of(void* device) { return handle_of(device) % 100; }
long instance_of(void* device) { return handle_of(device) / 100 - 1; }  // -1: it is a GPU

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* const file = std::getenv("FAKE_NVML_HANGS");
  while (says("hang") && (file == nullptr || ::access(file, F_OK) == 0)) ::usleep(10'000);
  return says("dead") ? kNotLoaded : kDone;
}
int nvmlShutdown() { return kDone; }
const char* nvmlErrorString(int result) {
  return result == kLost ? "GPU is lost" : "an error of the fake NVML";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(commanded("gpus", -1, 0));
  return kDone;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<long>(index) + 1);
  return kDone;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  if (instance_of(device) >= 0) {
    std::snprintf(uuid, size, "MIG-fake-%ld-%ld", number_of(device), instance_of(device));
  } else {
    std::snprintf(uuid, size, "GPU-fake-%ld", number_of(device));
  }
  return kDone;
}
int nvmlDeviceGetPciInfo_v3(void* device, void* info) {
  std::memset(info, 0, 68);
  std::snprintf(static_cast<char*>(info) + 36, 32, "00000000:%02lX:00.0", 0x10 + number_of(device));
  return kDone;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  if (commanded("lost", number_of(device), 0) != 0) return kLost;
  if (commanded("mig", number_of(device), 0) != 0) return kNotSupported;
  rates[0] = static_cast<unsigned>(40 + number_of(device));
  rates[1] = 0;
  return kDone;
}
int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* count) {
  *count = commanded("mig", number_of(device), 0) != 0 ? 7 : 0;
  return kDone;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** instance) {
  const long all = commanded("mig", number_of(device), 0);
  if (instance_of(device) >= 0 || index % 2 != 0 || index / 2 >= all) return kNotFound;
  *instance = reinterpret_cast<void*>(100 * (static_cast<long>(index) + 1) + number_of(device) + 1);
  return kDone;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  if (const long instance = instance_of(device); instance >= 0) {
    memory[0] = 10ULL << 30;
    memory[2] = static_cast<unsigned long long>(instance + 1) << 30;
    memory[1] = memory[0] - memory[2];
    return kDone;
  }
  memory[0] = 80ULL << 30;
  memory[1] = 60ULL << 30;
  memory[2] = 20ULL << 30;
  return kDone;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* degrees) {
  if (sensor != 0 || instance_of(device) >= 0) return kNotSupported;
  *degrees = static_cast<unsigned>(50 + number_of(device));
  return kDone;
}
int nvmlDeviceGetTotalEccErrors(void* device, int kind, int counter, unsigned long long* errors) {
  if (kind != 1 || counter != 0) return kNotSupported;
  *errors = static_cast<unsigned long long>(commanded("uncorrected", number_of(device), 0));
  return kDone;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void* device, int* pending) {
  *pending = static_cast<int>(commanded("pages_pending", number_of(device), 0));
  return kDone;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = 0;
  *pending = static_cast<unsigned>(commanded("rows_pending", number_of(device), 0));
  *failed = static_cast<unsigned>(commanded("rows_failed", number_of(device), 0));
  return kDone;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, void* processes) {
  const long instances = commanded("mig", number_of(device), 0);
  const bool computes = instances == 0 || instance_of(device) == 2 * (instances - 1);
  const long pid = computes ? commanded("process", number_of(device), 0) : 0;
  *count = pid != 0 ? 1 : 0;
  if (pid == 0) return kDone;
  std::memset(processes, 0, 24);
  const auto number = static_cast<unsigned>(pid);
  std::memcpy(processes, &number, sizeof number);
  return kDone;
}

}  // extern "C"
