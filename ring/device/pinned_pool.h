// Pinned memory of the host for messages, which later messages use again. The driver frees such
// memory only when the GPU has done all its work, and an NCCL operation among that work may wait
// for a peer that waits for a message of this rank.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "ring/device/device_memory.h"

namespace dlaunch {

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  static Result<std::shared_ptr<PinnedPool>> make(int device);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // At least so many bytes. They return to the pool with the last copy of the pointer. Any thread.
  Result<std::shared_ptr<void>> take(std::size_t bytes);
  // A copy from or to some memory has not ended: the pool's memory is never used or freed again.
  void leave_behind();

 private:
  explicit PinnedPool(std::unique_ptr<DeviceContext> context) : context_(std::move(context)) {}
  PinnedMemory reuse(std::size_t& bytes);
  void give_back(PinnedMemory memory, std::size_t bytes);

  const std::unique_ptr<DeviceContext> context_;
  std::mutex mutex_;
  std::multimap<std::size_t, PinnedMemory> free_;  // by size
  bool left_behind_ = false;
};

}  // namespace dlaunch
