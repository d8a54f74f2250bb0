// The network of train_fashion_mnist on a GPU: its parameters, their gradient and the training
// images lie in device memory, and all work goes into one stream. Throws NoGpu without a GPU, and
// std::runtime_error with CUDA's words for other failures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "training.h"

struct NoGpu : std::runtime_error {
  using runtime_error::runtime_error;
};

class CudaNet {
 public:
  // Rank r of a host uses the host's GPU r. If there are fewer GPUs than ranks, ranks share GPUs.
  CudaNet(int local_rank, const Options& options, const Dataset& train);
  ~CudaNet();

  void* stream() const;

  // Loss and gradient of `count` training images, as parts of the means over global_batch of them.
  void gradient(const std::uint32_t* images, std::size_t count, std::size_t global_batch);
  // In device memory: the gradient of all parameters, then the loss.
  float* gradient_values() const;
  std::size_t gradient_size() const;
  // The present loss; waits for the stream.
  float loss() const;

  // Stochastic gradient descent with momentum.
  void update(float rate, float momentum);

  // The number of images [first, last) of this set that get their label.
  std::int64_t right(const Dataset& data, int first, int last);

  std::vector<float> weights() const;

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};
