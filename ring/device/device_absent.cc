// Replaces the device plane if the headers of CUDA or NCCL were missing at build time.
#include "ring/device/device_copy.h"
#include "ring/device/device_plane.h"

namespace dlaunch {

std::string_view device_support_missing() {
  return "this libdlring was built without the headers of CUDA and NCCL";
}

int device_of(const void*) { return -1; }

std::unique_ptr<DevicePlane> make_device_plane(DeviceSettings, AbortFlag&) { return nullptr; }

std::unique_ptr<DeviceCopier> make_device_copier() { return nullptr; }

}  // namespace dlaunch
