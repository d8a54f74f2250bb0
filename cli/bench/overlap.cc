#include "cli/bench/overlap.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <dlaunch/bucketer.hpp>

#include "cli/bench/calibrate.h"

namespace bench {

void compute(long steps) {
  std::uint64_t x = 88172645463325252;  // xorshift: each step needs the result of the last
  for (long i = 0; i < steps; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  asm volatile("" : : "r"(x));  // keeps the compiler from removing the steps
}

double compute_step_us() {
  constexpr long kSteps = 100'000;
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const double started = now_us();
    compute(kSteps);
    times.push_back((now_us() - started) / kSteps);
  }
  return median(times);
}

double hidden_percent(double comm_us, double compute_us, double both_us) {
  const double shorter = std::min(comm_us, compute_us);
  if (shorter <= 0) return 0;
  return std::clamp(100 * (comm_us + compute_us - both_us) / shorter, 0.0, 100.0);
}

double bucketed_us(dl_comm* comm, float* gradients, std::size_t count, long steps) {
  struct Borrowed {
    ~Borrowed() { own.release(); }
    dl::Communicator own;
  } borrowed{dl::Communicator::adopt(comm)};
  std::vector<std::span<float>> tensors;
  for (std::size_t i = 0; i < kTensors; ++i) {
    const std::size_t begin = count * i / kTensors, end = count * (i + 1) / kTensors;
    tensors.emplace_back(gradients + begin, end - begin);
  }
  const std::size_t bytes = count * sizeof(float);
  dl::GradientBucketer<float> bucketer(
      borrowed.own, tensors, {.bucket_bytes = bytes / 4, .first_bucket_bytes = bytes / kTensors});
  borrowed.own.barrier();
  const double started = now_us();
  for (std::size_t i = kTensors; i-- > 0;) {
    compute(steps / static_cast<long>(kTensors));
    bucketer.ready(i);
  }
  bucketer.finish();
  return now_us() - started;
}

}  // namespace bench
