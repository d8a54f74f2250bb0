#include "cli/bench/gpu_memory.h"

#include <new>
#include <stdexcept>

#include "base/symbols.h"

namespace bench {
namespace {

// The few functions of the driver that are needed here, with the types of its stable binary
// interface: the benchmark builds without CUDA's headers.
struct Driver {
  int (*init)(unsigned);
  int (*device_get_count)(int*);
  int (*device_get)(int*, int);
  int (*primary_ctx_retain)(void**, int);
  int (*ctx_push)(void*);
  int (*mem_alloc)(unsigned long long*, std::size_t);
  int (*mem_free)(unsigned long long);
  int (*to_device)(unsigned long long, const void*, std::size_t);
  int (*to_host)(void*, unsigned long long, std::size_t);
  int (*stream_synchronize)(void*);
  int (*device_get_uuid)(char*, int);
};

// Set by use_gpu().
Driver g_driver;
int g_device = 0;

bool load_driver(Driver& driver) {
  dlaunch::SymbolReader symbols{.library = dlaunch::open_library("libcuda.so.1")};
  if (symbols.library == nullptr) return false;
  symbols.read(driver.init, "cuInit");
  symbols.read(driver.device_get_count, "cuDeviceGetCount");
  symbols.read(driver.device_get, "cuDeviceGet");
  symbols.read(driver.primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  symbols.read(driver.ctx_push, "cuCtxPushCurrent_v2");
  symbols.read(driver.mem_alloc, "cuMemAlloc_v2");
  symbols.read(driver.mem_free, "cuMemFree_v2");
  symbols.read(driver.to_device, "cuMemcpyHtoD_v2");
  symbols.read(driver.to_host, "cuMemcpyDtoH_v2");
  symbols.read(driver.stream_synchronize, "cuStreamSynchronize");
  // Older drivers have only the function without the number.
  if (!symbols.read_optional(driver.device_get_uuid, "cuDeviceGetUuid_v2")) {
    symbols.read(driver.device_get_uuid, "cuDeviceGetUuid");
  }
  return symbols.missing == nullptr;
}

}  // namespace

std::string use_gpu(int local_rank) {
  if (!load_driver(g_driver)) return "there is no CUDA driver here (libcuda.so.1)";
  int gpus = 0;
  void* context = nullptr;
  if (g_driver.init(0) != 0 || g_driver.device_get_count(&gpus) != 0 || gpus == 0) {
    return "the CUDA driver finds no GPU";
  }
  const bool made = g_driver.device_get(&g_device, local_rank % gpus) == 0 &&
                    g_driver.primary_ctx_retain(&context, g_device) == 0 &&
                    g_driver.ctx_push(context) == 0;
  return made ? "" : "the CUDA driver gives no context on GPU " + std::to_string(local_rank % gpus);
}

bool gpu_uuid(char* uuid) { return g_driver.device_get_uuid(uuid, g_device) == 0; }

void await_gpu() {
  if (g_driver.stream_synchronize(nullptr) != 0) {
    throw std::runtime_error("the CUDA driver reports that the GPU's work has failed");
  }
}

GpuMemory::GpuMemory(std::size_t bytes) : bytes_(bytes) {
  if (g_driver.mem_alloc(&address_, bytes) != 0) throw std::bad_alloc();
}

GpuMemory::~GpuMemory() { g_driver.mem_free(address_); }

void GpuMemory::write(const void* host) {
  if (g_driver.to_device(address_, host, bytes_) != 0) {
    throw std::runtime_error("the CUDA driver does not copy to the GPU");
  }
}

void GpuMemory::read(void* host) const {
  if (g_driver.to_host(host, address_, bytes_) != 0) {
    throw std::runtime_error("the CUDA driver does not copy from the GPU");
  }
}

}  // namespace bench
