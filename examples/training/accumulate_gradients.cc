// Gradient accumulation: a batch that is too large for memory, taken in small pieces, with one
// all_reduce.
//
//   $ c++ -std=c++20 accumulate_gradients.cc $(dlaunch --cflags --libs) -o accumulate_gradients
//   $ dlaunch --nproc 2 ./accumulate_gradients
//   [0] all_reduce after each micro-batch: 80 calls
//   [0] all_reduce after each batch:       20 calls
//   [0] the weights are the same: yes
//
// A sum of gradients is the gradient of the sum. So each rank adds up the gradients of its
// micro-batches in its own memory, and the ranks exchange only the total.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include <dlaunch/ring.hpp>

namespace {

constexpr int kBatches = 20, kMicroBatches = 4, kMicroBatch = 8, kFeatures = 6;
constexpr double kRate = 0.05;
using Vector = std::vector<double>;

// Adds the gradient of one micro-batch: the sum over its samples, so that sums of it are right
// whatever the sizes of the pieces.
void add_gradient(const Vector& weights, std::mt19937& random, Vector& gradient) {
  std::normal_distribution<double> normal;
  for (int sample = 0; sample < kMicroBatch; ++sample) {
    Vector x(kFeatures);
    double error = 0;
    for (std::size_t k = 0; k < kFeatures; ++k) {
      x[k] = normal(random);
      error += x[k] * (weights[k] - (static_cast<double>(k) + 1));  // the right weights: 1, 2 …
    }
    for (std::size_t k = 0; k < kFeatures; ++k) gradient[k] += 2 * error * x[k];
  }
}

struct Result {
  Vector weights = Vector(kFeatures);
  int calls = 0;
};
Result train(dl::Communicator& comm, bool accumulate) {
  std::seed_seq seed{1, comm.rank()};  // each rank has samples of its own
  std::mt19937 random(seed);
  Result result;
  for (int batch = 0; batch < kBatches; ++batch) {
    Vector total(kFeatures);
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      Vector gradient(kFeatures);
      add_gradient(result.weights, random, gradient);
      if (!accumulate) {
        comm.all_reduce(gradient);
        ++result.calls;
      }
      for (std::size_t k = 0; k < kFeatures; ++k) total[k] += gradient[k];
    }
    if (accumulate) {
      comm.all_reduce(total);
      ++result.calls;
    }
    const double samples = comm.size() * kMicroBatches * kMicroBatch;  // on all ranks together
    for (std::size_t k = 0; k < kFeatures; ++k) result.weights[k] -= kRate * total[k] / samples;
  }
  return result;
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  const Result often = train(comm, false), seldom = train(comm, true);
  if (comm.rank() != 0) return 0;
  double apart = 0;
  for (std::size_t k = 0; k < kFeatures; ++k) {
    apart = std::max(apart, std::abs(often.weights[k] - seldom.weights[k]));
  }
  std::printf("all_reduce after each micro-batch: %d calls\n", often.calls);
  std::printf("all_reduce after each batch:       %d calls\n", seldom.calls);
  std::printf("the weights are the same: %s\n", apart < 1e-12 ? "yes" : "no");
}
