#include "ring/shm/host_memory.h"

namespace dlaunch {

HostMemory::HostMemory(const ShmMemory& memory)
    : ranks_(memory.shape.ranks),
      staging_(std::make_unique<StagingPool>(memory.own, memory.data, memory.shape.staging_bytes(),
                                             memory.keep)),
      pairs_(static_cast<std::size_t>(memory.shape.ranks)) {}

StagingPool& HostMemory::pair(int r) {
  const std::lock_guard lock(mutex_);
  auto& pool = pairs_[static_cast<std::size_t>(r)];
  if (!pool) {
    pool = std::make_unique<StagingPool>(ranks_, shape_for(2).pair_bytes());
    if (pass_) pool->pass_by(pass_as(1));
  }
  return *pool;
}

void HostMemory::pass_by(Pass pass) {
  const std::lock_guard lock(mutex_);
  pass_ = std::make_shared<const Pass>(std::move(pass));
  staging_->pass_by(pass_as(0));
  for (const auto& pool : pairs_) {
    if (pool) pool->pass_by(pass_as(1));
  }
}

// The lowest bit of a word chooses the pool, the other bits the piece in it.
StagingPool::Pass HostMemory::pass_as(std::uint64_t kind) const {
  return [pass = pass_, kind](int rank, std::uint64_t number, int descriptor) {
    (*pass)(rank, number << 1 | kind, descriptor);
  };
}

void HostMemory::take(int r, std::uint64_t word, const UniqueFd& descriptor) {
  ((word & 1) == 0 ? staging() : pair(r)).take(r, word >> 1, descriptor);
}

}  // namespace dlaunch
