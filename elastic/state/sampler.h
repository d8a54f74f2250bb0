// The order of samples: pure functions of seed, epoch, position, rank and size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/even_share.h"

namespace dlaunch {

// The samples of one epoch in random order (Fisher and Yates, as in Knuth 2, 3.4.2 P), the same on
// every machine.
std::vector<std::uint32_t> epoch_order(std::uint32_t samples, std::uint64_t seed,
                                       std::uint64_t epoch);

class Sampler {
 public:
  // The samples taken so far: the part that belongs to the state.
  struct Position {
    std::uint64_t epoch = 0;
    std::uint64_t samples = 0;  // of this epoch
  };

  Sampler(std::uint32_t samples, std::uint64_t batch, std::uint64_t seed)
      : samples_(samples), batch_(batch), seed_(seed) {}

  const Position& position() const { return position_; }
  // Goes back to a commit's position. If that program had more samples, all of this one's may have
  // been taken; then the next epoch begins.
  void go_on_from(const Position& position);

  // From now on each rank's part of a batch is that of its virtual shards: see
  // ring/call/shard_tree.h.
  void set_shards(int shards) { shards_ = shards; }
  int shards() const { return shards_; }  // 0: none

  struct Batch {
    std::span<const std::uint32_t> mine;
    std::uint64_t global = 0;
  };
  // The batch at the position, which it then advances. Valid until the next call.
  Batch next(int rank, int size);
  // A shard's part of that batch. Valid as long.
  std::span<const std::uint32_t> of_shard(int shard) const;

 private:
  std::span<const std::uint32_t> part(const Share& share) const;

  const std::uint32_t samples_;
  const std::uint64_t batch_, seed_;
  int shards_ = 0;
  Position position_;
  std::uint64_t batch_first_ = 0, batch_size_ = 0;  // the last batch, in order_
  std::vector<std::uint32_t> order_;                // of order_epoch_
  std::uint64_t order_epoch_ = 0;
};

}  // namespace dlaunch
