// train_fashion_mnist on GPUs: the same network and the same batches, with gradients summed in
// device memory. Not an elastic program: a lost rank ends the training.
//
//   dlaunch --nproc gpu train_fashion_mnist_cuda --epochs 4
//   dlaunch --nproc 2 train_fashion_mnist_cuda      # with one GPU the two share it
//
// The losses are those of train_fashion_mnist up to rounding.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include <dlaunch/elastic.hpp>
#include <dlaunch/ring.hpp>

#include "fashion_mnist_cuda.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNoGpuExit = 69;  // EX_UNAVAILABLE
constexpr const char* kUsage =
    "usage: train_fashion_mnist_cuda [--data DIR] [--epochs N] [--batch N] [--lr RATE] [--seed N]\n"
    "                                [--limit IMAGES] [--hidden UNITS] [--model FILE]\n"
    "                                [--losses FILE]\n"
    "--batch counts the images of all ranks together. Run it under dlaunch.\n"
    "Exit codes: 64: a flag is wrong. 69: there is no GPU. 1: anything else that failed.\n";

int local_rank() {
  const char* text = std::getenv("LOCAL_RANK");
  return text == nullptr ? 0 : std::atoi(text);
}

double accuracy(dl::Communicator& comm, CudaNet& net, const Dataset& test) {
  std::uint64_t first = 0, last = 0;
  dl_even_share(static_cast<std::uint64_t>(test.size()), comm.rank(), comm.size(), &first, &last);
  std::int64_t right[] = {net.right(test, static_cast<int>(first), static_cast<int>(last))};
  comm.all_reduce(std::span<std::int64_t>(right));
  return static_cast<double>(right[0]) / test.size();
}

std::vector<float> train(dl::Communicator& comm, CudaNet& net, const Options& options,
                         const Dataset& images, const Dataset& test) {
  const std::span<float> gradient(net.gradient_values(), net.gradient_size());
  dl::State state(comm);  // for the sampler
  dl::ElasticSampler sampler(state, "samples", static_cast<std::uint64_t>(images.size()),
                             static_cast<std::uint64_t>(options.batch), options.seed);
  std::vector<float> losses;
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    const auto began = Clock::now();
    while (sampler.epoch() == static_cast<std::uint64_t>(epoch)) {
      const float done = static_cast<float>(epoch) +
                         static_cast<float>(sampler.position()) / static_cast<float>(images.size());
      const auto batch = sampler.next();
      net.gradient(batch.mine.data(), batch.mine.size(), batch.global);
      comm.all_reduce(gradient);  // in the stream, like the work before and after it
      losses.push_back(net.loss());
      net.update(rate_after(options, done), options.momentum);
    }
    const double right = accuracy(comm, net, test);
    const std::chrono::duration<double> took = Clock::now() - began;
    if (comm.rank() != 0) continue;
    std::printf("epoch %d  loss %.4f  accuracy %.4f  %.0f images/s\n", epoch + 1,
                epoch_loss(losses, epoch + 1, options, images), right,
                images.size() / took.count());
    std::fflush(stdout);
  }
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) return std::fputs(kUsage, stdout) < 0;
  try {
    const Options options = parse(argc, argv, false);
    if (!options.losses.empty()) check_writable(options.losses);
    const Dataset images = load_fashion_mnist(options.data, "train", options.limit);
    const Dataset test = load_fashion_mnist(options.data, "t10k", 0);
    CudaNet net(local_rank(), options, images);
    auto comm = dl::Communicator::init();
    comm.set_stream(net.stream());
    comm.set_stream_ordered(true);
    const auto losses = train(comm, net, options, images, test);
    comm.sync();  // all steps must have succeeded
    if (comm.rank() != 0) return 0;
    if (!options.losses.empty()) write_losses(losses, options.losses);
    if (!options.model.empty()) write_model(net.weights(), options.model);
    return 0;
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "train_fashion_mnist_cuda: %s\n", e.what());
    return 64;
  } catch (const NoGpu& e) {
    std::fprintf(stderr, "train_fashion_mnist_cuda: %s\n", e.what());
    return kNoGpuExit;
  } catch (const std::exception& e) {  // also dl::Error, which names a lost peer
    std::fprintf(stderr, "train_fashion_mnist_cuda: %s\n", e.what());
    return 1;
  }
}
