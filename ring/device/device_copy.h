// DeviceCopier: copies between a GPU's memory and ordinary memory of the host, within one process:
// no other rank takes part, and it works after a communicator has ended.
//
// It uses two pieces of pinned memory in turn: one is copied between the GPU and the host while the
// other is copied within the host. So it pins only a few MiB, for a copy of any size.
#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

class DeviceCopier {
 public:
  virtual ~DeviceCopier() = default;
  // One buffer is in the memory of `device`, the other in the host's. Runs after the present work
  // of `stream` (a CUstream); returns when the copy is done.
  enum class To { host, device };
  virtual Result<void> copy(void* to, const void* from, std::size_t bytes, To where, int device,
                            void* stream, TimePoint deadline) = 0;
};

// Null if device_support_missing().
std::unique_ptr<DeviceCopier> make_device_copier();

}  // namespace dlaunch
