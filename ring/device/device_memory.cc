#include "ring/device/device_memory.h"

namespace dlaunch {

Result<std::unique_ptr<DeviceContext>> DeviceContext::retain(int ordinal) {
  CUdevice device = 0;
  if (auto ok = cuda_done("cuDeviceGet", cuda_driver()->device_get(&device, ordinal)); !ok) {
    return ok.error();
  }
  CUcontext context = nullptr;
  const CUresult retained = cuda_driver()->primary_ctx_retain(&context, device);
  if (auto ok = cuda_done("cuDevicePrimaryCtxRetain", retained); !ok) return ok.error();
  return std::unique_ptr<DeviceContext>(new DeviceContext(device, context));
}

DeviceContext::~DeviceContext() { cuda_driver()->primary_ctx_release(device_); }

// The stream does not wait for the legacy stream, which may hold the user's work.
Result<DeviceStream> make_device_stream() {
  CUstream stream = nullptr;
  const CUresult made = cuda_driver()->stream_create(&stream, CU_STREAM_NON_BLOCKING);
  if (auto ok = cuda_done("cuStreamCreate", made); !ok) return ok.error();
  return DeviceStream(stream);
}

Result<DeviceEvent> make_device_event() {
  CUevent event = nullptr;
  const CUresult made = cuda_driver()->event_create(&event, CU_EVENT_DISABLE_TIMING);
  if (auto ok = cuda_done("cuEventCreate", made); !ok) return ok.error();
  return DeviceEvent(event);
}

Result<void> record(const DeviceEvent& event, CUstream stream) {
  return cuda_done("cuEventRecord", cuda_driver()->event_record(event.get(), stream));
}

Result<PinnedMemory> make_pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  const CUresult made = cuda_driver()->mem_host_alloc(&memory, bytes, 0);
  if (auto ok = cuda_done("cuMemHostAlloc", made); !ok) return ok.error();
  return PinnedMemory(static_cast<char*>(memory));
}

}  // namespace dlaunch
