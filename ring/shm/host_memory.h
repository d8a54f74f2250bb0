// HostMemory: the memory in which this process stages large calls with other ranks of its host. One
// pool is for this process to write; for each other rank one more pool is for both to write, for
// groups of just these two. It passes descriptors on the process's links. Thread-safe; ranks are
// those of the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/unique_fd.h"
#include "ring/shm/shm_memory.h"
#include "ring/shm/staging_pool.h"

namespace dlaunch {

class HostMemory {
 public:
  // memory: that of the communicator of all ranks of the host.
  explicit HostMemory(const ShmMemory& memory);

  StagingPool& staging() { return *staging_; }
  // The pool that this rank and rank r both write; it is made at the first call.
  StagingPool& pair(int r);

  // `word`: an argument for the rank's take(). Call it before a second communicator uses this
  // object.
  using Pass = std::function<void(int rank, std::uint64_t word, int descriptor)>;
  void pass_by(Pass pass);
  // A descriptor from rank r has come.
  void take(int r, std::uint64_t word, const UniqueFd& descriptor);

 private:
  StagingPool::Pass pass_as(std::uint64_t kind) const;

  const int ranks_;
  const std::unique_ptr<StagingPool> staging_;
  std::mutex mutex_;
  std::shared_ptr<const Pass> pass_;                 // under the mutex
  std::vector<std::unique_ptr<StagingPool>> pairs_;  // likewise, by rank
};

}  // namespace dlaunch
