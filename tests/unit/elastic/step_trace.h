// A simulated training: the times of every rank and link, step by step, by seed. Ranks compute,
// meet in a collective, and leave it together. A Fault describes what slows a rank down.
//
// Noise: each rank's compute time is log-normal, and drifts slowly by a few per cent. Now and then
// the system takes 5 to 50 ms from a rank, and a collector pauses it for a third of a step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "elastic/straggler_detector.h"

namespace dlaunch::test {

enum class Fault { none, slow_rank, slow_input, slow_link, moving, all_slow, slow_start };

struct TraceConfig {
  int ranks = 8;
  double compute = 0.1;    // seconds between collectives
  double transfer = 0.02;  // seconds in a collective, where nobody is late
  double noise = 0.05;     // sigma of the log-normal factor
  Fault fault = Fault::none;
  double factor = 1;   // by which the fault slows what it is about
  int rank = 0;        // or the link from it to the next
  double begins = 60;  // seconds
  std::uint64_t seed = 0;
};

class StepTrace {
 public:
  explicit StepTrace(TraceConfig config)
      : config_(config),
        random_(config.seed),
        drift_(static_cast<std::size_t>(config.ranks)),
        left_(static_cast<std::size_t>(config.ranks)) {}

  double now() const { return now_; }  // seconds

  StepTimes next() {
    const auto size = static_cast<std::size_t>(config_.ranks);
    std::vector<double> entered(size), input(size);
    for (std::size_t i = 0; i < size; ++i) {
      const double usual = compute(i);
      const double factor = slowdown(static_cast<int>(i));
      if (config_.fault == Fault::slow_input) input[i] = usual * (factor - 1);
      entered[i] = left_[i] + usual * factor + interruption();
    }
    StepTimes step;
    add_links(step);
    const double first = *std::min_element(entered.begin(), entered.end());
    const double last = *std::max_element(entered.begin(), entered.end());
    double slowest = 0;
    for (const LinkTimes& link : step.links) slowest = std::max(slowest, link.seconds);
    for (std::size_t i = 0; i < size; ++i) {
      // All data is there when the slowest link is done; who is behind it leaves last.
      const double behind = step.links[(i + size - 1) % size].seconds;
      const double leaves = last + 0.5 * slowest + 0.5 * behind;
      step.ranks.push_back({.late = entered[i] - first,
                            .in_op = leaves - entered[i],
                            .step = leaves - left_[i],
                            .input = input[i]});
      left_[i] = leaves;
    }
    now_ = *std::max_element(left_.begin(), left_.end());
    return step;
  }

 private:
  double normal() { return std::normal_distribution<double>()(random_); }
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  double compute(std::size_t i) {
    drift_[i] = 0.99 * drift_[i] + 0.003 * normal();  // sigma 2 %, over about 100 steps
    return config_.compute * std::exp(config_.noise * normal() + drift_[i]);
  }

  double interruption() {
    double time = 0;
    if (uniform(0, 1) < 0.02) time += uniform(0.005, 0.05);
    if (uniform(0, 1) < 0.01) time += config_.compute / 3;
    return time;
  }

  double slowdown(int rank) {
    const bool on = now_ >= config_.begins;
    switch (config_.fault) {
      case Fault::slow_rank:
      case Fault::slow_input:
        return on && rank == config_.rank ? config_.factor : 1;
      case Fault::moving:
        return on && rank == static_cast<int>(now_ / 5) % config_.ranks ? config_.factor : 1;
      case Fault::all_slow:
        return on ? config_.factor : 1;
      case Fault::slow_start:
        return now_ < 20 && rank == config_.rank ? config_.factor : 1;
      case Fault::none:
      case Fault::slow_link:
        return 1;
    }
    return 1;
  }

  void add_links(StepTimes& step) {  // a ring
    const bool faulty = config_.fault == Fault::slow_link && now_ >= config_.begins;
    for (int from = 0; from < config_.ranks; ++from) {
      double seconds = config_.transfer * std::exp(config_.noise * normal());
      if (faulty && from == config_.rank) seconds *= config_.factor;
      const int to = (from + 1) % config_.ranks;
      step.links.push_back({.from = from, .to = to, .kind = 1, .bytes = 4e6, .seconds = seconds});
    }
  }

  const TraceConfig config_;
  std::mt19937_64 random_;
  std::vector<double> drift_;
  std::vector<double> left_;  // the last collective
  double now_ = 0;
};

}  // namespace dlaunch::test
