// Training that continues when a worker dies, to the same weights bit by bit.
//
//   $ c++ -std=c++20 elastic_sgd.cc $(dlaunch --cflags --libs dlelastic) -o elastic_sgd
//   $ dlaunch --nproc 3 ./elastic_sgd quiet.weights
//   [0] round 1 begins at step 0
//   [0] the weights are right after 60 steps
//   [1] round 1 begins at step 0
//   [2] round 1 begins at step 0
//   $ dlaunch --nproc 3 --max-restarts 3 ./elastic_sgd lost.weights --lose
//   [0] round 1 begins at step 0
//   [0] round … begins at step 30
//   [0] the weights are right after 60 steps
//   [1] round 1 begins at step 0
//   [1] rank 1 kills itself
//   [1] round … begins at step 30
//   [2] round 1 begins at step 0
//   [2] round … begins at step 30
//   dlaunch: … killed by SIGKILL …
//   $ cmp quiet.weights lost.weights && echo "the same weights, bit by bit"
//   the same weights, bit by bit
//
// A round is a set of workers. When one of them dies, the round is over: dlaunch starts a new
// process in its place, and the others keep their processes. All take the last commit and continue
// from there. With `--spares 1` a spare process already waits for a death, and `--chaos kill=2s`
// kills workers at random. `dlaunchctl resize 5` changes the number of workers.
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <dlaunch/elastic.hpp>
#include <dlaunch/ring.hpp>

namespace {

constexpr std::size_t kSamples = 480, kFeatures = 8, kBatch = 24, kEpochs = 3;
constexpr double kRate = 0.05;
using Vector = std::vector<double>;

double right(std::size_t feature) { return static_cast<double>(feature) + 1; }

std::vector<Vector> data() {
  std::mt19937 random(1);  // the same on every rank
  std::normal_distribution<double> normal;
  std::vector<Vector> samples(kSamples, Vector(kFeatures));
  for (auto& sample : samples) {
    for (auto& value : sample) value = normal(random);
  }
  return samples;
}

void add_gradient(const Vector& x, const Vector& weights, Vector& gradient) {
  double error = 0;
  for (std::size_t k = 0; k < kFeatures; ++k) error += x[k] * (weights[k] - right(k));
  for (std::size_t k = 0; k < kFeatures; ++k) gradient[k] += 2 * error * x[k];
}

bool are_right(const Vector& weights) {
  for (std::size_t k = 0; k < kFeatures; ++k) {
    if (std::abs(weights[k] - right(k)) > 0.1) return false;
  }
  return true;
}

void kill_self() {
  std::printf("rank 1 kills itself\n");
  std::fflush(stdout);
  std::raise(SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  const bool lose = argc > 2 && std::string(argv[2]) == "--lose";
  dl::Options options;
  options.elastic = 1;  // this process goes on when others are lost
  auto comm = dl::Communicator::init(nullptr, options);
  const auto samples = data();
  Vector weights(kFeatures);

  // The parts of the training. The sampler gives each rank its part of the next batch, and its
  // position is part of the state, too.
  dl::State state(comm);
  state.replicated("weights", weights);
  dl::ElasticSampler sampler(state, "samples", kSamples, kBatch, 1);
  const auto step = [&] {
    return static_cast<int>((sampler.epoch() * kSamples + sampler.position()) / kBatch);
  };

  std::uint64_t round = 0;
  dl::run_elastic(state, [&] {  // one step; run_elastic commits it if this returns true
    if (std::exchange(round, comm.round()) != comm.round()) {
      std::printf("round %d begins at step %d\n", static_cast<int>(comm.round()), step());
    }
    if (sampler.epoch() == kEpochs) return false;
    const bool fatal = lose && round == 1 && comm.rank() == 1 && step() == 30;
    const auto batch = sampler.next();
    Vector gradient(kFeatures);
    for (const auto sample : batch.mine) add_gradient(samples[sample], weights, gradient);
    if (fatal) kill_self();
    comm.all_reduce(gradient);
    for (std::size_t k = 0; k < kFeatures; ++k) {
      weights[k] -= kRate * gradient[k] / static_cast<double>(batch.global);
    }
    return true;
  });
  if (comm.rank() != 0) return 0;
  std::ofstream(argv[1], std::ios::binary)
      .write(reinterpret_cast<const char*>(weights.data()),
             static_cast<std::streamsize>(weights.size() * sizeof(double)));
  std::printf("the weights are %s after %d steps\n", are_right(weights) ? "right" : "wrong",
              step());
}
