#include "elastic/state/sampler.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace dlaunch {

std::vector<std::uint32_t> epoch_order(std::uint32_t samples, std::uint64_t seed,
                                       std::uint64_t epoch) {
  std::vector<std::uint32_t> order(samples);
  std::iota(order.begin(), order.end(), 0u);
  // Seeded through the standard's own mixing, so that neighbouring seeds and epochs have nothing in
  // common. No distributions, because each library has its own.
  std::seed_seq mixed{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32)};
  std::mt19937_64 random(mixed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

void Sampler::go_on_from(const Position& position) {
  position_ = position.samples < samples_ ? position : Position{position.epoch + 1, 0};
}

Sampler::Batch Sampler::next(int rank, int size) {
  if (order_.empty() || order_epoch_ != position_.epoch) {
    order_ = epoch_order(samples_, seed_, position_.epoch);
    order_epoch_ = position_.epoch;
  }
  batch_first_ = position_.samples;
  batch_size_ = std::min(batch_, samples_ - position_.samples);
  position_.samples += batch_size_;
  if (position_.samples == samples_) position_ = {position_.epoch + 1, 0};
  if (shards_ == 0) return {part(even_share(batch_size_, rank, size)), batch_size_};
  const ShardRange own = shard_range(shards_, rank, size);
  if (own.first == own.last) return {{}, batch_size_};
  const auto share = [&](int shard) { return even_share(batch_size_, shard, shards_); };
  return {part({share(own.first).first, share(own.last - 1).last}), batch_size_};
}

std::span<const std::uint32_t> Sampler::of_shard(int shard) const {
  return part(even_share(batch_size_, shard, shards_));
}

std::span<const std::uint32_t> Sampler::part(const Share& share) const {
  return std::span(order_).subspan(batch_first_ + share.first, share.last - share.first);
}

}  // namespace dlaunch
