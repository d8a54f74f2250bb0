// A small training with whole numbers, and deaths at random, for whole jobs of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "thread_world.h"

namespace dlaunch {

inline constexpr std::uint64_t kSamples = 97, kBatch = 10, kEpochs = 4;
inline constexpr std::size_t kLength = 50;

// Whole numbers, so that sums are exact in any order.
inline double contribution(std::uint32_t sample, std::size_t i) {
  return static_cast<double>((sample * 7919u + i * 104729u) % 1000);
}

struct Trained {
  std::vector<double> w = std::vector<double>(kLength);
  std::vector<std::uint32_t> used = std::vector<std::uint32_t>(kSamples);  // by all ranks

  // One step's sums over all ranks, and which samples they were of.
  void apply(const std::vector<double>& sums, const std::vector<std::uint32_t>& now_used = {}) {
    for (std::size_t i = 0; i < kLength; ++i) {
      w[i] = std::fmod(w[i] * 31 + sums[i], 1000003.0);
    }
    for (std::size_t i = 0; i < now_used.size(); ++i) used[i] += now_used[i];
  }
};

// This rank's part of a step.
struct Part {
  explicit Part(std::span<const std::uint32_t> samples) {
    for (const auto sample : samples) {
      for (std::size_t i = 0; i < kLength; ++i) sums[i] += contribution(sample, i);
      ++used[sample];
    }
  }
  std::vector<double> sums = std::vector<double>(kLength);
  std::vector<std::uint32_t> used = std::vector<std::uint32_t>(kSamples);
};

inline std::vector<double> alone() {
  Sampler sampler(kSamples, kBatch, 1);
  Trained all;
  while (sampler.position().epoch < kEpochs) {
    all.apply(Part(sampler.next(0, 1).mine).sums);
  }
  return all.w;
}

// Right if each sample was used once an epoch and the weights are those of one rank.
inline bool is_right(const Trained& trained, const std::vector<double>& expected) {
  return trained.w == expected &&
         std::ranges::count(trained.used, kEpochs) == static_cast<long>(kSamples);
}

class Chaos {
 public:
  Chaos(Job& job, unsigned seed) : job_(job), random_(seed) {}

  // Called by each member in each step: may be its end.
  void strike(Member& m, const Body& again) {
    const std::lock_guard lock(mutex_);
    if (deaths_left_ == 0 || m.size() == 1 || random_() % 30 != 0 ||
        victims_of_ == m.rounds.round()) {
      return;
    }
    victims_of_ = m.rounds.round();  // one a round, so that somebody is left
    --deaths_left_;
    if (random_() % 3 != 0) job_.replace(m.slot, again);
    throw Killed();
  }

 private:
  Job& job_;
  std::mutex mutex_;
  std::mt19937 random_;
  int deaths_left_ = 6;
  std::uint64_t victims_of_ = 0;
};

}  // namespace dlaunch
