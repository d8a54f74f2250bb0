// DeviceCopier: copies between a GPU's memory and ordinary memory of the host, for a process by
// itself: no other rank takes part, and it works when a communicator is over.
//
// Through two pieces of pinned memory in turn: while one is under way between the GPU and the host,
// the other is copied within the host. So what is pinned is a few MiB, whatever is copied.
#pragma once

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

class DeviceCopier {
 public:
  virtual ~DeviceCopier() = default;
  // One of the two is in the memory of `device`, the other in the host's. After what `stream` (a
  // CUstream) holds now; when it returns the copy is there.
  enum class To { host, device };
  virtual Result<void> copy(void* to, const void* from, std::size_t bytes, To where, int device,
                            void* stream, TimePoint deadline) = 0;
};

// Null where device_support_missing().
std::unique_ptr<DeviceCopier> make_device_copier();

}  // namespace dlaunch
