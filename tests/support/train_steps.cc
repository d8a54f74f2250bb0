// Behaves like data-parallel training: waits for forward, makes gradients during backward, and sums
// them in buckets meanwhile. Rank 0 prints the median time of a step in milliseconds.
//
//   train_steps MIB_OF_GRADIENTS STEP_MS BUCKET_KIB STEPS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <thread>
#include <vector>

#include <dlaunch/bucketer.hpp>
#include <dlaunch/ring.hpp>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kTensorBytes = 64 << 10;

struct Training {
  std::size_t tensors;
  std::chrono::duration<double> step;
};

// Backward takes two thirds of the step.
void train_step(const Training& training, dl::GradientBucketer<float>& bucketer) {
  const auto began = Clock::now();
  for (std::size_t done = 1; done <= training.tensors; ++done) {
    const double share = 1 / 3.0 + 2 / 3.0 * static_cast<double>(done) / training.tensors;
    std::this_thread::sleep_until(began + training.step * share);
    bucketer.ready(training.tensors - done);
  }
  bucketer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 || std::atoi(argv[4]) < 1) return 64;
  auto comm = dl::Communicator::init();
  const Training training{std::strtoull(argv[1], nullptr, 10) * ((1 << 20) / kTensorBytes),
                          std::chrono::duration<double, std::milli>(std::atof(argv[2]))};
  const std::size_t bucket = std::strtoull(argv[3], nullptr, 10) << 10;
  std::vector<std::vector<float>> gradients(training.tensors,
                                            std::vector<float>(kTensorBytes / sizeof(float), 1));
  dl::GradientBucketer<float> bucketer(
      comm, {gradients.begin(), gradients.end()},
      {.bucket_bytes = bucket, .first_bucket_bytes = std::min<std::size_t>(bucket, 1 << 20)});
  std::vector<double> times;
  for (int i = std::atoi(argv[4]); i > 0; --i) {
    const auto began = Clock::now();
    train_step(training, bucketer);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  std::sort(times.begin(), times.end());
  if (comm.rank() == 0) std::printf("%.1f\n", times[times.size() / 2]);
}
