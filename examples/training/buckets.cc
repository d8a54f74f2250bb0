// The effect of the bucket size: gradients are summed in groups while backpropagation still runs.
//
//   $ c++ -std=c++20 -O2 buckets.cc $(dlaunch --cflags --libs) -o buckets
//   $ dlaunch --nproc 2 ./buckets buckets.csv
//   [0] 40 gradients of 64 KiB, 2 ranks
//   [0]  bucket KiB  buckets  ms a step
//   [0]           1       40          …
//   [0]          64       40          …
//   [0]         256       10          …
//   [0]        1024        3          …
//   [0]        4096        1          …
//   [0] with each bucket size the sums are right
//   $ python3 plot.py buckets.csv buckets.svg
//   5 points in buckets.svg
//
// Backpropagation finishes gradients one by one, from the last layer to the first. One all_reduce
// per gradient starts early and pays the cost of a call for each. A single all_reduce for all of
// them pays once, but starts when there is nothing left to compute. Buckets are between the two:
// dl::GradientBucketer starts the all_reduce of a bucket when its gradients are ready.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include <dlaunch/bucketer.hpp>
#include <dlaunch/ring.hpp>

namespace {

constexpr std::size_t kGradients = 40, kElements = 16 << 10;  // of 4 bytes
constexpr int kRounds = 7;
using Gradients = std::vector<std::vector<float>>;

// Stands for the backward pass of one layer: some work for each element.
void compute(std::vector<float>& gradient, int rank) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    float x = static_cast<float>(i);
    for (int k = 0; k < 8; ++k) x = std::sqrt(x + 1.0f);
    gradient[i] = x >= 0 ? static_cast<float>(rank + 1) : x;
  }
}

// Milliseconds of one step: computes all gradients and sums them over the ranks.
double step(dl::Communicator& comm, Gradients& gradients, dl::GradientBucketer<float>& bucketer) {
  comm.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = gradients.size(); i-- > 0;) {
    compute(gradients[i], comm.rank());
    bucketer.ready(i);  // the all_reduce of its bucket may begin while the loop goes on
  }
  bucketer.finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count() * 1e3;
}

void check(const Gradients& gradients, int ranks) {
  const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
  for (const auto& gradient : gradients) {
    if (std::ranges::any_of(gradient, [&](float x) { return x != sum; })) {
      throw std::runtime_error("a sum is wrong");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  auto comm = dl::Communicator::init();
  const bool first = comm.rank() == 0;
  Gradients gradients(kGradients, std::vector<float>(kElements));
  const std::vector<std::span<float>> spans(gradients.begin(), gradients.end());
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> csv(
      first && argc > 1 ? std::fopen(argv[1], "w") : nullptr,
      [](std::FILE* file) { return file ? std::fclose(file) : 0; });
  if (first) {
    std::printf("%zu gradients of %zu KiB, %d ranks\n", kGradients, kElements * 4 >> 10,
                comm.size());
    std::printf("%11s %8s %10s\n", "bucket KiB", "buckets", "ms a step");
    if (csv) std::fputs("bucket KiB,ms a step\n", csv.get());
  }
  for (const std::size_t kib : {1, 64, 256, 1024, 4096}) {
    dl::GradientBucketer<float> bucketer(
        comm, spans, {.bucket_bytes = kib << 10, .first_bucket_bytes = kib << 10});
    double best = 1e30;
    for (int round = 0; round < kRounds; ++round) {
      best = std::min(best, step(comm, gradients, bucketer));
      check(gradients, comm.size());
    }
    if (first) std::printf("%11zu %8zu %10.2f\n", kib, bucketer.buckets(), best);
    if (csv) std::fprintf(csv.get(), "%zu,%.3f\n", kib, best);
  }
  if (first) std::printf("with each bucket size the sums are right\n");
}
