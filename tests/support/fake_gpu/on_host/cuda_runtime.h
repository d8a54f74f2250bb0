// Replaces CUDA's own header, over the imitation of its driver: the part of the runtime that the
// CUDA trainer uses, with kernels as functions that the host runs in the stream's order, thread
// after thread. For tests of kernels' results; their threads cannot wait for each other.
// CUDA_VISIBLE_DEVICES sets the number of GPUs, one for each number in it; unset: eight.
#pragma once

#include <cuda.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <type_traits>

#include "../fake_gpu.h"

#define __global__
#define __device__

struct FakeDim {
  unsigned x = 0;
};
inline FakeDim blockIdx, blockDim, threadIdx;

namespace cuda_on_host {

// An argument in the form that the host may use: a pointer, or a struct that begins with one.
template <class T>
T seen(T argument) {
  if constexpr (!std::is_arithmetic_v<T>) {
    static_assert(std::is_trivially_copyable_v<T>);
    void* pointer = nullptr;
    std::memcpy(&pointer, &argument, sizeof pointer);
    if (void* const view = fake_gpu_view(pointer)) std::memcpy(&argument, &view, sizeof view);
  }
  return argument;
}

// The translation of kernel<<<blocks, threads, 0, stream>>>(arguments...).
template <class Kernel, class... Arguments>
void run(int blocks, int threads, CUstream stream, Kernel kernel, Arguments... arguments) {
  fake_gpu_enqueue(stream, [blocks, threads, kernel, ... on_host = seen(arguments)] {
    blockDim.x = static_cast<unsigned>(threads);
    for (blockIdx.x = 0; blockIdx.x < static_cast<unsigned>(blocks); ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(on_host...);
    }
  });
}

inline CUstream the_stream = nullptr;  // such a program has only one

}  // namespace cuda_on_host

using cudaError_t = CUresult;
using cudaStream_t = CUstream;
constexpr CUresult cudaSuccess = CUDA_SUCCESS;
enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaStreamNonBlocking };

inline const char* cudaGetErrorString(cudaError_t result) {
  const char* text = "?";
  (void)cuGetErrorString(result, &text);
  return text;
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return cuDeviceGetCount(count);
  *count = *visible == '\0' ? 0 : 1;
  for (; *visible != '\0'; ++visible) *count += *visible == ',';
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  CUcontext context = nullptr;
  (void)cuDevicePrimaryCtxRetain(&context, device);
  return cuCtxPushCurrent(context);
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, int) {
  const auto made = cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
  cuda_on_host::the_stream = *stream;
  return made;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cuda_on_host::the_stream = nullptr;
  return cuStreamDestroy(stream);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto there = std::make_shared<std::promise<void>>();
  auto seen = there->get_future();
  fake_gpu_enqueue(stream, [there] { there->set_value(); });
  seen.wait();
  return cudaSuccess;
}
// Full of arbitrary bytes, like a GPU's.
inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  CUdeviceptr address = 0;
  const auto made = cuMemAlloc(&address, bytes);
  if (made != CUDA_SUCCESS) return made;
  *memory = reinterpret_cast<void*>(address);
  std::memset(fake_gpu_view(*memory), 0xff, bytes);
  return cudaSuccess;
}
// Like CUDA's, it waits for work that may still use the memory.
inline cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (cuda_on_host::the_stream != nullptr) (void)cudaStreamSynchronize(cuda_on_host::the_stream);
  return cuMemFree(reinterpret_cast<CUdeviceptr>(memory));
}
// For memory that is not pinned, as here: in the stream's order, and done when it returns.
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int way,
                                   cudaStream_t stream) {
  (void)cudaStreamSynchronize(stream);
  return way == cudaMemcpyHostToDevice
             ? cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(to), from, bytes)
             : cuMemcpyDtoH(to, reinterpret_cast<CUdeviceptr>(from), bytes);
}
