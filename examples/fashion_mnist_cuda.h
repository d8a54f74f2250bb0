// The network of train_fashion_mnist on a GPU: its parameters, their gradient and the training
// images lie in device memory, and everything is put into one stream. Throws NoGpu where there is
// none, and std::runtime_error with CUDA's words for what fails.
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
  // Ranks of one host take its GPUs in turn: with fewer GPUs than ranks several share one.
  CudaNet(int local_rank, const Options& options, const Dataset& train);
  ~CudaNet();

  void* stream() const;

  // Loss and gradient of `count` training images, as parts of the means over global_batch of them.
  void gradient(const std::uint32_t* images, std::size_t count, std::size_t global_batch);
  // In device memory: the gradient of all parameters and behind it the loss.
  float* gradient_values() const;
  std::size_t gradient_size() const;
  // The loss that is there now; waits for the stream.
  float loss() const;

  // Stochastic gradient descent with momentum.
  void update(float rate, float momentum);

  // How many of the images [first, last) of this set get their label.
  std::int64_t right(const Dataset& data, int first, int last);

  std::vector<float> weights() const;

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};
