// Pipeline parallelism: each rank has one layer, and micro-batches go through the ranks like
// through an assembly line.
//
//   $ c++ -std=c++20 -O2 pipeline.cc $(dlaunch --cflags --libs) -o pipeline
//   $ dlaunch --nproc 3 ./pipeline
//   [0] GPipe: F0 F1 F2 F3 B0 B1 B2 B3, keeps at most 4
//   [0] GPipe: bubble … measured, 0.33 by (p - 1) / (m + p - 1)
//   [0] 1F1B: F0 F1 F2 B0 F3 B1 B2 B3, keeps at most 3
//   [0] 1F1B: bubble … measured, 0.33 by (p - 1) / (m + p - 1)
//   [0] the gradients equal those of the unsplit network
//   [1] GPipe: F0 F1 F2 F3 B0 B1 B2 B3, keeps at most 4
//   [1] 1F1B: F0 F1 B0 F2 B1 F3 B2 B3, keeps at most 2
//   [1] the gradients equal those of the unsplit network
//   [2] GPipe: F0 F1 F2 F3 B0 B1 B2 B3, keeps at most 4
//   [2] 1F1B: F0 B0 F1 B1 F2 B2 F3 B3, keeps at most 1
//   [2] the gradients equal those of the unsplit network
//
// F2 is the forward pass of micro-batch 2, B2 its backward pass. A rank waits while the line fills
// and while it drains: this is the bubble. With p ranks and m micro-batches it takes the share
// (p - 1) / (m + p - 1) of the time if all ranks are equally fast and messages cost nothing. The
// measured share is larger on a machine with fewer cores than ranks.
//
// Both schedules have the same bubble. GPipe does all forward passes first, so it keeps the outputs
// of all of them. 1F1B begins with the backward passes as soon as it can, and keeps at most p.
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <dlaunch/ring.hpp>

#include "layer.h"

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
constexpr int kMicroBatches = 4;
constexpr std::size_t kMicroBatch = 96, kWidth = 160;

struct Step {
  char kind;  // F or B
  int batch;
};
using Schedule = std::vector<Step>;

Schedule gpipe(int, int) {
  Schedule steps;
  for (int i = 0; i < kMicroBatches; ++i) steps.push_back({'F', i});
  for (int i = 0; i < kMicroBatches; ++i) steps.push_back({'B', i});
  return steps;
}

Schedule one_forward_one_backward(int rank, int ranks) {
  const int ahead = std::min(ranks - rank - 1, kMicroBatches);  // before the first backward pass
  Schedule steps;
  for (int i = 0; i < ahead; ++i) steps.push_back({'F', i});
  for (int i = 0; i < kMicroBatches; ++i) {
    if (ahead + i < kMicroBatches) steps.push_back({'F', ahead + i});
    steps.push_back({'B', i});
  }
  return steps;
}

// This rank's layer, and its neighbours in the pipeline.
class Stage {
 public:
  Stage(dl::Communicator& comm, const Layer& layer, const Samples& samples)
      : comm_(comm), layer_(layer), samples_(samples) {}

  // Returns the share of the time in which the ranks waited: their mean.
  double run(const Schedule& steps) {
    busy_ = Seconds(0);
    std::ranges::fill(layer_.gradient.values, 0.0);
    comm_.barrier();
    const auto begin = Clock::now();
    for (const auto& step : steps) step.kind == 'F' ? forward(step.batch) : backward(step.batch);
    comm_.barrier();
    const Seconds took = Clock::now() - begin;
    double busy[] = {busy_.count()};
    comm_.all_reduce(busy, dl::Op::avg);
    return 1 - busy[0] / took.count();
  }
  std::size_t most_kept() const { return most_kept_; }
  const Matrix& gradient() const { return layer_.gradient; }

 private:
  bool first() const { return comm_.rank() == 0; }
  bool last() const { return comm_.rank() == comm_.size() - 1; }

  Matrix received(int from) {
    Matrix matrix(kMicroBatch, kWidth);
    comm_.recv(matrix.values, from);
    return matrix;
  }

  void forward(int batch) {
    Matrix x = first() ? samples_.inputs[std::size_t(batch)] : received(comm_.rank() - 1);
    const auto begin = Clock::now();
    Matrix y = layer_.forward(x);
    busy_ += Clock::now() - begin;
    if (!last()) comm_.send(y.values, comm_.rank() + 1);
    kept_[batch] = {std::move(x), std::move(y)};  // the backward pass needs them
    most_kept_ = std::max(most_kept_, kept_.size());
  }

  void backward(int batch) {
    const auto [x, y] = kept_.extract(batch).mapped();
    const Matrix dy = last()
                          ? loss_gradient(y, samples_.targets[std::size_t(batch)], samples_.count)
                          : received(comm_.rank() + 1);
    const auto begin = Clock::now();
    const Matrix dx = layer_.backward(x, y, dy);
    busy_ += Clock::now() - begin;
    if (!first()) comm_.send(dx.values, comm_.rank() - 1);
  }

  dl::Communicator& comm_;
  Layer layer_;
  const Samples& samples_;
  std::map<int, std::pair<Matrix, Matrix>> kept_;
  std::size_t most_kept_ = 0;
  Seconds busy_{};
};

void show(dl::Communicator& comm, const std::string& name, const Schedule& steps,
          const Samples& samples, const Matrix& right) {
  Stage stage(comm, network(comm.size(), kWidth)[std::size_t(comm.rank())], samples);
  stage.run(steps);  // the first run warms up: connections, caches
  const double bubble = stage.run(steps);
  std::string text;
  for (const auto& step : steps) text += " " + (step.kind + std::to_string(step.batch));
  std::printf("%s:%s, keeps at most %zu\n", name.c_str(), text.c_str(), stage.most_kept());
  if (comm.rank() == 0) {
    std::printf("%s: bubble %.2f measured, %.2f by (p - 1) / (m + p - 1)\n", name.c_str(), bubble,
                (comm.size() - 1.0) / (kMicroBatches + comm.size() - 1.0));
  }
  expect_equal(stage.gradient(), right);
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  const int rank = comm.rank(), ranks = comm.size();
  const auto data = samples(kMicroBatches, kMicroBatch, kWidth);
  const Matrix right = unsplit(network(ranks, kWidth), data)[std::size_t(rank)].gradient;
  show(comm, "GPipe", gpipe(rank, ranks), data, right);
  show(comm, "1F1B", one_forward_one_backward(rank, ranks), data, right);
  std::printf("the gradients equal those of the unsplit network\n");
}
