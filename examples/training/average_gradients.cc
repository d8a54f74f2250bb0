// Data-parallel training by hand: each rank has a part of the data, and the ranks average their
// gradients.
//
//   $ c++ -std=c++20 average_gradients.cc $(dlaunch --cflags --libs) -o average_gradients
//   $ dlaunch --nproc 2 ./average_gradients
//   [0] step  0  loss …
//   [0] step 20  loss …
//   [0] step 40  loss …
//   [0] the ranks have the same weights: yes
//   [0] one process with all the data comes to the same weights: yes
//
// The gradient of a mean over all samples is the mean of the gradients over equal parts. So the
// ranks together take the step that one process would take.
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include <dlaunch/ring.hpp>

namespace {

constexpr int kSamples = 1024, kFeatures = 8, kSteps = 60;
constexpr double kRate = 0.1;
using Vector = std::vector<double>;
struct Sample {
  Vector inputs;
  double target;
};

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The samples first, first + stride …. The seed makes them equal on all ranks.
std::vector<Sample> data(int first, int stride) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<Sample> mine;
  for (int i = 0; i < kSamples; ++i) {
    Sample sample{Vector(kFeatures), 0.1 * normal(random)};
    for (int k = 0; k < kFeatures; ++k) {
      auto& input = sample.inputs[static_cast<std::size_t>(k)] = normal(random);
      sample.target += (k + 1) * input;
    }
    if (i % stride == first) mine.push_back(sample);
  }
  return mine;
}

// Returns the loss. The gradient is that of the mean over these samples.
double gradient_of(const std::vector<Sample>& samples, const Vector& weights, Vector& gradient) {
  double loss = 0;
  gradient.assign(kFeatures, 0);
  const auto n = static_cast<double>(samples.size());
  for (const auto& sample : samples) {
    const double error = dot(weights, sample.inputs) - sample.target;
    loss += error * error / n;
    for (std::size_t k = 0; k < kFeatures; ++k) gradient[k] += 2 * error * sample.inputs[k] / n;
  }
  return loss;
}

using Average = std::function<void(Vector&)>;
Vector train(const std::vector<Sample>& samples, const Average& average, bool tell) {
  Vector weights(kFeatures), gradient;  // all ranks begin with the same weights
  for (int step = 0; step < kSteps; ++step) {
    Vector loss = {gradient_of(samples, weights, gradient)};
    average(gradient);
    for (std::size_t k = 0; k < kFeatures; ++k) weights[k] -= kRate * gradient[k];
    if (step % 20 != 0) continue;
    average(loss);
    if (tell) std::printf("step %2d  loss %.3f\n", step, loss[0]);
  }
  return weights;
}

bool close(const Vector& a, const Vector& b, double tolerance) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) > tolerance) return false;
  }
  return true;
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  const bool first = comm.rank() == 0;
  const auto average = [&](Vector& values) { comm.all_reduce(values, dl::Op::avg); };
  const Vector weights = train(data(comm.rank(), comm.size()), average, first);

  Vector least = weights, most = weights;
  comm.all_reduce(least, dl::Op::min);
  comm.all_reduce(most, dl::Op::max);
  if (!first) return 0;
  std::printf("the ranks have the same weights: %s\n", least == most ? "yes" : "no");
  const Vector alone = train(
      data(0, 1), [](Vector&) {}, false);
  std::printf("one process with all the data comes to the same weights: %s\n",
              close(alone, weights, 1e-12) ? "yes" : "no");
}
