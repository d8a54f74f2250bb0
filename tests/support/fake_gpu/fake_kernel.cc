// The one kernel that the fake CUDA driver runs, dl_compute of cli/doctor/gpu_test.cc, here in C++;
// see fake_gpu.h. FAKE_GPU_WRONG="GPU:copy" or "GPU:kernel": that GPU gets that wrong.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cli/doctor/host_test.h"
#include "fake_gpu.h"

bool fake_gpu_wrong(const char* what) {
  const char* const all = std::getenv("FAKE_GPU_WRONG");
  return all != nullptr && all == std::to_string(fake_gpu_current()) + ":" + what;
}

CUresult cuDeviceGetPCIBusId(char* bus, int size, CUdevice device) {
  std::snprintf(bus, static_cast<std::size_t>(size), "0000:%02X:00.0",
                static_cast<unsigned>(0x10 + device));
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (std::strstr(static_cast<const char*>(image), "dl_compute") == nullptr)
    return CUDA_ERROR_INVALID_PTX;
  *module = reinterpret_cast<CUmodule>(const_cast<void*>(image));
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  if (std::strcmp(name, "dl_compute") != 0) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(module);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                        unsigned, unsigned, CUstream, void** arguments, void**) {
  const auto to = *static_cast<std::uint64_t*>(arguments[0]);
  const auto seed = *static_cast<std::uint64_t*>(arguments[1]);
  const auto steps = *static_cast<std::uint32_t*>(arguments[2]);
  auto* const out = static_cast<std::uint64_t*>(fake_gpu_view(reinterpret_cast<const void*>(to)));
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::uint64_t i = 0; i < std::uint64_t{blocks} * threads; ++i) {
    out[i] = dlaunch::compute(seed + i, static_cast<int>(steps));
  }
  if (fake_gpu_wrong("kernel")) out[7] ^= 1;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
