// Two kinds of parallelism at once: two pipelines of two stages, which average their gradients.
//
//   $ c++ -std=c++20 ddp_pipeline.cc $(dlaunch --cflags --libs) -o ddp_pipeline
//   $ dlaunch --nproc 4 ./ddp_pipeline
//   [0] pipeline 0, stage 0: the gradients equal those of one process
//   [1] pipeline 0, stage 1: the gradients equal those of one process
//   [2] pipeline 1, stage 0: the gradients equal those of one process
//   [3] pipeline 1, stage 1: the gradients equal those of one process
//
//                 stage 0    stage 1
//   pipeline 0    rank 0 ->  rank 1     along a row: outputs and their gradients, by send and recv
//   pipeline 1    rank 2 ->  rank 3     along a column: gradients of one layer, by all_reduce
//
// One process would have the whole network and all samples.
#include <cstdio>
#include <map>
#include <utility>

#include <dlaunch/ring.hpp>

#include "layer.h"

namespace {

constexpr int kStages = 2, kMicroBatches = 4;
constexpr std::size_t kMicroBatch = 16, kWidth = 32;

Matrix received(dl::Communicator& pipeline, int from) {
  Matrix matrix(kMicroBatch, kWidth);
  pipeline.recv(matrix.values, from);
  return matrix;
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  const int row = comm.rank() / kStages, stage = comm.rank() % kStages;
  const bool first = stage == 0, last = stage == kStages - 1;
  auto pipeline = comm.split(row);
  auto replicas = comm.split(stage);  // the ranks that have the same layer
  Layer layer = network(kStages, kWidth)[std::size_t(stage)];
  const auto data = samples(kMicroBatches, kMicroBatch, kWidth);

  // The samples are cut among the pipelines. All forward passes first, as GPipe does.
  std::map<int, std::pair<Matrix, Matrix>> kept;
  for (int i = row; i < kMicroBatches; i += replicas.size()) {
    const Matrix x = first ? data.inputs[std::size_t(i)] : received(pipeline, stage - 1);
    const Matrix y = layer.forward(x);
    if (!last) pipeline.send(y.values, stage + 1);
    kept[i] = {x, y};
  }
  for (const auto& [i, values] : kept) {
    const auto& [x, y] = values;
    const Matrix dy = last ? loss_gradient(y, data.targets[std::size_t(i)], data.count)
                           : received(pipeline, stage + 1);
    const Matrix dx = layer.backward(x, y, dy);
    if (!first) pipeline.send(dx.values, stage - 1);
  }
  replicas.all_reduce(layer.gradient.values);

  expect_equal(layer.gradient,
               unsplit(network(kStages, kWidth), data)[std::size_t(stage)].gradient);
  std::printf("pipeline %d, stage %d: the gradients equal those of one process\n", row, stage);
}
