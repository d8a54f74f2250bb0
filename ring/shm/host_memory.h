// HostMemory: the memory in which this process stages large calls with other ranks of its host. It
// has one pool that it writes itself, and for each other rank one that both write, for the groups
// that these two form alone. What it makes is passed on the process's links. Thread-safe; ranks are
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
  // memory: of the communicator of all ranks of the host.
  explicit HostMemory(const ShmMemory& memory);

  StagingPool& staging() { return *staging_; }
  // What this rank and rank r both write.
  StagingPool& pair(int r) { return *pairs_[static_cast<std::size_t>(r)]; }

  // `word`: for the rank's take(). Before a second communicator uses this.
  using Pass = std::function<void(int rank, std::uint64_t word, int descriptor)>;
  void pass_by(const Pass& pass);
  // What rank r has passed has come.
  void take(int r, std::uint64_t word, const UniqueFd& descriptor);

 private:
  std::unique_ptr<StagingPool> staging_;
  std::vector<std::unique_ptr<StagingPool>> pairs_;
};

}  // namespace dlaunch
