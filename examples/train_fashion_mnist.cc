// Data-parallel training of a small neural network on Fashion-MNIST.
//
//   $ c++ -std=c++20 -O3 train_fashion_mnist.cc -o train_fashion_mnist \
//         $(dlaunch --cflags --libs dlelastic) $(pkg-config --cflags eigen3) -lz
//   $ dlaunch --nproc 2 ./train_fashion_mnist --epochs 2 --limit 2000
//   [0] epoch 1  loss …  accuracy 0.…  … images/s  commits … %
//   [0] epoch 2  loss …  accuracy 0.…  … images/s  commits … %
//
// Without --limit the program trains on all 60,000 images. With workers that die:
//
//   dlaunch --nproc 4 --spares 1 --max-restarts 100 --chaos kill=2s ./train_fashion_mnist
//
// The program is elastic. A dl::State holds the whole training, and the program commits it in place
// after each step: a step changes nothing of the state before update(). When a rank dies, the other
// ranks stay, and its successor gets the state from them. All continue from the last commit, to the
// same weights, bit by bit.
//
// Every rank holds the whole model. The ranks share each global batch, and every rank computes the
// gradient of its share. dl::GradientBucketer adds up the gradients while the ranks still compute
// the others, and every rank takes the same step. So all models stay equal, and the losses are
// those of one rank with the same batch, up to the rounding of the sums.
//
// The rounding stays small until the last step, because the network is smooth: pixels are centred
// and the hidden layer is a tanh. With relu, which is not smooth, two runs that differ in one bit
// have different weights after a few hundred steps.

#include <malloc.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Core>
#include <dlaunch/bucketer.hpp>
#include <dlaunch/elastic.hpp>
#include <dlaunch/ring.hpp>

#include "training.h"

namespace {

using Clock = std::chrono::steady_clock;

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixMap = Eigen::Map<Matrix>;
using RowMap = Eigen::Map<Eigen::RowVectorXf>;

// The parameters, or their gradient and the loss.
struct Model {
  explicit Model(int hidden) : layout{hidden} {}

  Layout layout;
  std::vector<float> values =
      std::vector<float>(static_cast<std::size_t>(layout.parameters()) + 1, 0.0f);
  float* at(int offset) { return values.data() + offset; }
  MatrixMap w1() { return {at(0), kInput, layout.hidden}; }
  RowMap b1() { return {at(layout.b1()), layout.hidden}; }
  MatrixMap w2() { return {at(layout.w2()), layout.hidden, kClasses}; }
  RowMap b2() { return {at(layout.b2()), kClasses}; }
  float& loss() { return values.back(); }  // of a gradient; a model's is 0

  enum Tensor { kW1, kB1, kW2, kB2, kLoss };
  std::vector<std::span<float>> tensors() {
    const auto n = [](int count) { return static_cast<std::size_t>(count); };
    return {{at(0), n(layout.b1())},
            {at(layout.b1()), n(layout.hidden)},
            {at(layout.w2()), n(layout.hidden * kClasses)},
            {at(layout.b2()), n(kClasses)},
            {at(layout.parameters()), 1}};
  }
};
// Sends the first gradients while backpropagation still computes the large first layer.
constexpr std::size_t kFirstBucket = std::size_t{8} << 10;

// Memory that each step uses again.
struct Workspace {
  Matrix x;
  std::vector<int> labels;
  Matrix hidden;
  Matrix probabilities;
  Matrix back;
};

void load_image(const Dataset& data, int image, Workspace& f, int row) {
  const auto pixels =
      Eigen::Map<const Eigen::Matrix<std::uint8_t, 1, kInput>>(data.image(image)).array();
  f.x.row(row) = (pixels.cast<float>() - kPixelMean) / kPixelDeviation;
}

void forward(Model& model, Workspace& f) {
  f.hidden.noalias() = f.x * model.w1();
  f.hidden.rowwise() += model.b1();
  f.hidden = f.hidden.array().tanh();
  f.probabilities.noalias() = f.hidden * model.w2();
  f.probabilities.rowwise() += model.b2();
  for (Eigen::Index i = 0; i < f.probabilities.rows(); ++i) {
    auto row = f.probabilities.row(i).array();
    row = (row - row.maxCoeff()).exp();
    row /= row.sum();
  }
}

// Loss and gradient of this rank's share, as parts of the global batch's means. Calls ready(tensor)
// for each tensor as soon as it is complete.
template <class Ready>
void gradient(Model& model, Model& grad, Workspace& f, int global_batch, Ready ready) {
  forward(model, f);
  const float weight = 1.0f / static_cast<float>(global_batch);
  grad.loss() = 0;
  Matrix& error = f.probabilities;  // becomes dLoss/dLogits
  for (Eigen::Index i = 0; i < error.rows(); ++i) {
    float& p = error(i, f.labels[static_cast<std::size_t>(i)]);
    grad.loss() -= std::log(std::max(p, 1e-12f)) * weight;
    p -= 1.0f;
  }
  error *= weight;
  grad.w2().noalias() = f.hidden.transpose() * error;
  grad.b2() = error.colwise().sum();
  for (const auto tensor : {Model::kLoss, Model::kB2, Model::kW2}) ready(tensor);
  f.back.noalias() = error * model.w2().transpose();
  f.back.array() *= 1.0f - f.hidden.array().square();  // tanh' = 1 - tanh²
  grad.w1().noalias() = f.x.transpose() * f.back;
  grad.b1() = f.back.colwise().sum();
  for (const auto tensor : {Model::kB1, Model::kW1}) ready(tensor);
}

double accuracy(dl::Communicator& comm, Model& model, const Dataset& test) {
  std::uint64_t first = 0, last = 0;
  dl_even_share(static_cast<std::uint64_t>(test.size()), comm.rank(), comm.size(), &first, &last);
  std::int64_t right[] = {0};
  if (last > first) {
    Workspace f;
    f.x.resize(static_cast<Eigen::Index>(last - first), kInput);
    const auto row = [&](std::uint64_t image) { return static_cast<int>(image - first); };
    for (auto i = first; i < last; ++i) load_image(test, static_cast<int>(i), f, row(i));
    forward(model, f);
    for (auto i = first; i < last; ++i) {
      Eigen::Index best = 0;
      f.probabilities.row(row(i)).maxCoeff(&best);
      right[0] += best == test.labels[i];
    }
  }
  comm.all_reduce(std::span<std::int64_t>(right));
  return static_cast<double>(right[0]) / test.size();
}

class Trainer {
 public:
  Trainer(dl::Communicator& comm, const Options& options, const Dataset& train, const Dataset& test)
      : comm_(comm),
        options_(options),
        train_(train),
        test_(test),
        model_(options.hidden),
        gradient_(options.hidden),
        velocity_(model_.values.size() - 1, 0.0f),
        state_(comm, state_options(options)) {
    initialise(model_.at(0), model_.layout, options.seed);
    state_.replicated("weights", model_.values);
    state_.replicated("velocity", velocity_);
    state_.replicated("losses", losses_);
    if (!options.snapshots.empty()) {
      state_.snapshots(options.snapshots, options.snapshot_every, 2);
    }
  }

  void run() {
    dl::run_elastic(state_, [this] {
      const auto now = Clock::now();
      state_time_ += now - left_step_.value_or(now);
      const bool more = step();
      left_step_ = Clock::now();
      return more;
    });
    if (comm_.rank() != 0) return;
    if (!options_.losses.empty()) write_losses(losses_, options_.losses);
    if (!options_.model.empty()) {
      write_model({model_.values.begin(), model_.values.end() - 1}, options_.model);
    }
  }

 private:
  int step_number() const {
    return static_cast<int>(sampler_.epoch()) * steps_per_epoch(options_, train_) +
           static_cast<int>(sampler_.position()) / options_.batch;
  }

  static dl::StateOptions state_options(const Options& options) {
    dl::StateOptions state;
    state.commit_every = options.commit_every;
    state.in_place = options.commit_every == 1;
    return state;
  }

  // One step on the next global batch; false: the training is over.
  bool step() {
    if (sampler_.position() == 0 && sampler_.epoch() > 0)
      report(static_cast<int>(sampler_.epoch()));
    if (sampler_.epoch() == static_cast<std::uint64_t>(options_.epochs)) return false;
    const int number = step_number();
    const float done = static_cast<float>(sampler_.epoch()) +
                       static_cast<float>(sampler_.position()) / static_cast<float>(train_.size());
    const auto batch = sampler_.next();
    learn(batch);
    images_ += batch.global;
    const auto learned = Clock::now();
    state_.update();
    state_time_ += Clock::now() - learned;
    losses_[static_cast<std::size_t>(number)] = gradient_.loss();
    const float rate = rate_after(options_, done);
    for (std::size_t i = 0; i < velocity_.size(); ++i) {
      velocity_[i] = options_.momentum * velocity_[i] + gradient_.values[i];
      model_.values[i] -= rate * velocity_[i];
    }
    return true;
  }

  // The gradient of the global batch, and its loss.
  void learn(const dl::ElasticSampler::Batch& batch) {
    const auto mine = static_cast<Eigen::Index>(batch.mine.size());
    work_.x.resize(mine, kInput);  // keeps its memory while the size is the same
    work_.labels.resize(batch.mine.size());
    for (std::size_t i = 0; i < batch.mine.size(); ++i) {
      load_image(train_, static_cast<int>(batch.mine[i]), work_, static_cast<int>(i));
      work_.labels[i] = train_.labels[batch.mine[i]];
    }
    dl::GradientBucketer<float> bucketer(comm_, gradient_.tensors(),
                                         {.first_bucket_bytes = kFirstBucket, .op = dl::Op::sum});
    if (mine > 0) {
      gradient(model_, gradient_, work_, static_cast<int>(batch.global),
               [&](Model::Tensor tensor) { bucketer.ready(tensor); });
    } else {
      std::fill(gradient_.values.begin(), gradient_.values.end(), 0.0f);
    }
    bucketer.finish();
  }

  void report(int epoch) {
    const double right = accuracy(comm_, model_, test_);
    if (std::exchange(reported_, epoch) == epoch) return;  // a loss has interrupted the next step
    const std::chrono::duration<double> took = Clock::now() - epoch_began_;
    const std::chrono::duration<double> of_state = std::exchange(state_time_, {});
    const auto images = static_cast<double>(std::exchange(images_, 0));
    epoch_began_ = Clock::now();
    if (comm_.rank() != 0) return;
    std::printf("epoch %d  loss %.4f  accuracy %.4f  %.0f images/s  commits %.2f %%\n", epoch,
                epoch_loss(losses_, epoch, options_, train_), right, images / took.count(),
                100 * of_state.count() / took.count());
    std::fflush(stdout);
  }

  dl::Communicator& comm_;
  const Options& options_;
  const Dataset& train_;
  const Dataset& test_;
  Model model_, gradient_;
  Workspace work_;
  std::vector<float> velocity_;
  std::vector<float> losses_ = std::vector<float>(
      static_cast<std::size_t>(options_.epochs * steps_per_epoch(options_, train_)), 0.0f);
  dl::State state_;
  dl::ElasticSampler sampler_{state_, "samples", static_cast<std::uint64_t>(train_.size()),
                              static_cast<std::uint64_t>(options_.batch), options_.seed};
  // Since then, in this process: a restarted one has not done the whole epoch, and a step may be
  // done again.
  Clock::time_point epoch_began_ = Clock::now();
  std::uint64_t images_ = 0;  // of all ranks
  int reported_ = 0;          // the last epoch, by this process
  std::optional<Clock::time_point> left_step_;
  Clock::duration state_time_{};  // within update() and between steps: the cost of being elastic
};

constexpr const char* kUsage =
    "usage: train_fashion_mnist [--data DIR] [--epochs N] [--batch N] [--lr RATE] [--seed N]\n"
    "                           [--limit IMAGES] [--hidden UNITS] [--model FILE] [--losses FILE]\n"
    "                           [--commit-every STEPS]\n"
    "                           [--snapshots DIR] [--snapshot-every STEPS]\n"
    "--batch counts the images of all ranks together. Run it under dlaunch.\n";

}  // namespace

int main(int argc, char** argv) {
  // Eigen's products take and free working memory in each step; returning it to the system every
  // time would cost more in page faults than the products themselves.
  ::mallopt(M_MMAP_THRESHOLD, 256 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) return std::fputs(kUsage, stdout) < 0;
  try {
    const Options options = parse(argc, argv, true);
    if (!options.losses.empty()) check_writable(options.losses);
    // Load before joining: a spare then has it ready.
    const Dataset train = load_fashion_mnist(options.data, "train", options.limit);
    const Dataset test = load_fashion_mnist(options.data, "t10k", 0);
    dl::Options join;
    join.elastic = 1;
    auto comm = dl::Communicator::init(nullptr, join);
    Trainer(comm, options, train, test).run();
    return 0;
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "train_fashion_mnist: %s\n", e.what());
    return 64;
  } catch (const std::exception& e) {  // also dl::Error, which names a lost peer
    std::fprintf(stderr, "train_fashion_mnist: %s\n", e.what());
    return 1;
  }
}
