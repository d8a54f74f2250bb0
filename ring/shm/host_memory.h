// HostMemory: the memory in which this process stages large calls with other ranks of its host. One
// pool is for this process to write; for each other rank one more pool is for both to write, for
// groups of just these two. It passes descriptors on the process's links. Thread-safe; ranks are
// those of the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
  // The pool that this rank and rank r both write.
  StagingPool& pair(int r) { return *pairs_[static_cast<std::size_t>(r)]; }

  // `word`: an argument for the rank's take(). Call it before a second communicator uses this
  // object.
  using Pass = std::function<void(int rank, std::uint64_t word, int descriptor)>;
  void pass_by(const Pass& pass);
  // A descriptor from rank r has come.
  void take(int r, std::uint64_t word, const UniqueFd& descriptor);

 private:
  std::unique_ptr<StagingPool> staging_;
  std::vector<std::unique_ptr<StagingPool>> pairs_;
};

}  // namespace dlaunch
