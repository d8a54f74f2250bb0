#include "elastic/state/sampler.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace dlaunch {

Share even_share(std::uint64_t count, int rank, int size) {
  const auto n = static_cast<std::uint64_t>(size), r = static_cast<std::uint64_t>(rank);
  const std::uint64_t each = count / n, more = count % n;  // count * r could overflow
  return {each * r + more * r / n, each * (r + 1) + more * (r + 1) / n};
}

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
  const std::uint64_t global = std::min(batch_, samples_ - position_.samples);
  const Share share = even_share(global, rank, size);
  const auto mine =
      std::span(order_).subspan(position_.samples + share.first, share.last - share.first);
  position_.samples += global;
  if (position_.samples == samples_) position_ = {position_.epoch + 1, 0};
  return {mine, global};
}

}  // namespace dlaunch
