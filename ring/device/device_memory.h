// What the device plane owns on a GPU, each with one owner: context, streams, events, pinned
// memory.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/result.h"
#include "ring/device/libraries.h"

namespace dlaunch {

// The GPU's primary context, which the CUDA runtime uses, too.
class DeviceContext {
 public:
  static Result<std::unique_ptr<DeviceContext>> retain(int ordinal);
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  CUcontext get() const { return context_; }
  CUdevice device() const { return device_; }

 private:
  DeviceContext(CUdevice device, CUcontext context) : device_(device), context_(context) {}
  const CUdevice device_;
  const CUcontext context_;
};

// Makes a context this thread's current one, until the end of the scope.
class CurrentContext {
 public:
  explicit CurrentContext(CUcontext context) : pushed_(cuda_driver()->ctx_push(context)) {}
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (pushed_ == CUDA_SUCCESS) cuda_driver()->ctx_pop(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  Result<void> made() const { return cuda_done("cuCtxPushCurrent", pushed_); }

 private:
  const CUresult pushed_;
};

struct StreamCloser {
  void operator()(CUstream stream) const { cuda_driver()->stream_destroy(stream); }
};
struct EventCloser {
  void operator()(CUevent event) const { cuda_driver()->event_destroy(event); }
};
struct PinnedCloser {
  void operator()(char* memory) const { cuda_driver()->mem_free_host(memory); }
};
using DeviceStream = std::unique_ptr<CUstream_st, StreamCloser>;
using DeviceEvent = std::unique_ptr<CUevent_st, EventCloser>;
using PinnedMemory = std::unique_ptr<char, PinnedCloser>;

// Makes it in the current context.
Result<DeviceStream> make_device_stream();
Result<DeviceEvent> make_device_event();
Result<void> record(const DeviceEvent& event, CUstream stream);
Result<PinnedMemory> make_pinned_memory(std::size_t bytes);

}  // namespace dlaunch
