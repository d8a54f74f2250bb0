#include "ring/shm/host_memory.h"

namespace dlaunch {

HostMemory::HostMemory(const ShmMemory& memory)
    : staging_(std::make_unique<StagingPool>(memory.own, memory.data, memory.shape.staging_bytes(),
                                             memory.keep)) {
  const std::size_t bytes = shape_for(2).pair_bytes();
  for (int r = 0; r < memory.shape.ranks; ++r) {
    pairs_.push_back(std::make_unique<StagingPool>(memory.shape.ranks, bytes));
  }
}

// The lowest bit of a word chooses the pool, the other bits the piece in it.
void HostMemory::pass_by(const Pass& pass) {
  const auto pass_as = [&pass](std::uint64_t kind) {
    return [pass, kind](int rank, std::uint64_t number, int descriptor) {
      pass(rank, number << 1 | kind, descriptor);
    };
  };
  staging_->pass_by(pass_as(0));
  for (const auto& pool : pairs_) pool->pass_by(pass_as(1));
}

void HostMemory::take(int r, std::uint64_t word, const UniqueFd& descriptor) {
  ((word & 1) == 0 ? staging() : pair(r)).take(r, word >> 1, descriptor);
}

}  // namespace dlaunch
