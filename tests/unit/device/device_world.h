// Ranks as processes, with device memory of the imitations in tests/support/fake_gpu.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "fake_gpu.h"
#include "tests/unit/ring/process_world.h"

namespace dlaunch {

// How a test's ranks have their GPUs: one each, for NCCL, or one for all, for the host's memory.
enum class Gpus { own, shared };
inline constexpr Gpus kGpus[] = {Gpus::own, Gpus::shared};
inline int gpu_of(Gpus gpus, int rank) { return gpus == Gpus::own ? rank : 0; }

inline CUstream make_stream(int gpu) {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  cuDevicePrimaryCtxRetain(&context, gpu);
  cuCtxPushCurrent(context);
  cuStreamCreate(&stream, 0);
  cuCtxPopCurrent(&context);
  return stream;
}

// At its deadline a call asks the other ranks. On a busy machine a rank may not answer within a
// second, or may not have begun its call yet. Such a result says nothing of NCCL.
inline bool late(dl_comm* comm, dl_result result) {
  constexpr std::array kStates = {"(no answer)", "(not in this call)", "(in an earlier call)"};
  const std::string told = dl_last_error(comm);
  return result == DL_ERR_TIMEOUT && std::ranges::any_of(kStates, [&](const char* state) {
           return told.find(state) != std::string::npos;
         });
}

// Elements in device memory. Nobody but the fakes may touch them at data().
template <class T>
class DeviceVector {
 public:
  DeviceVector(std::size_t count, int gpu, T value = T()) : count_(count) {
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, gpu);
    cuCtxPushCurrent(context);
    cuMemAlloc(&memory_, count * sizeof(T));
    cuCtxPopCurrent(&context);
    for (std::size_t i = 0; i < count; ++i) (*this)[i] = value;
  }
  ~DeviceVector() { cuMemFree(memory_); }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;

  T* data() { return reinterpret_cast<T*>(memory_); }
  T& operator[](std::size_t i) { return static_cast<T*>(fake_gpu_view(data()))[i]; }
  std::vector<T> copy() {
    const T* const begin = static_cast<T*>(fake_gpu_view(data()));
    return std::vector<T>(begin, begin + count_);
  }
  void set(const std::vector<T>& values) {
    std::copy(values.begin(), values.end(), static_cast<T*>(fake_gpu_view(data())));
  }

 private:
  std::size_t count_;
  CUdeviceptr memory_ = 0;
};

}  // namespace dlaunch
