// Cutting a data set into one part per rank, in another random order in each epoch.
//
//   $ c++ -std=c++20 partition_data.cc $(dlaunch --cflags --libs) -o partition_data
//   $ dlaunch --nproc 3 ./partition_data
//   [0] epoch 0: rank 0 has 4 samples, …
//   [0] epoch 0: together each sample once
//   [0] epoch 1: rank 0 has 4 samples, …
//   [0] epoch 1: together each sample once
//   [1] epoch 0: rank 1 has 3 samples, …
//   [1] epoch 1: rank 1 has 3 samples, …
//   [2] epoch 0: rank 2 has 3 samples, …
//   [2] epoch 1: rank 2 has 3 samples, …
//
// All ranks shuffle with the same seed, so they agree on the order without a message. Then each
// rank takes its own part. When the ranks have different numbers of samples, add up gradients and
// divide by the number of samples of all ranks together. The mean of the ranks' means would count
// the samples of rank 1 more than those of rank 0.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <dlaunch/ring.hpp>

namespace {

constexpr int kSamples = 10;
constexpr unsigned kSeed = 1;

// The numbers of this rank's samples. Ranks differ by at most one sample.
std::vector<int> part(int samples, int rank, int size, unsigned epoch) {
  std::vector<int> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  std::seed_seq seed{kSeed, epoch};
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  const int least = samples / size, larger = samples % size;  // the first ranks have one more
  const int first = rank * least + std::min(rank, larger);
  const int count = least + (rank < larger ? 1 : 0);
  return {order.begin() + first, order.begin() + first + count};
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  for (unsigned epoch = 0; epoch < 2; ++epoch) {
    const auto mine = part(kSamples, comm.rank(), comm.size(), epoch);
    std::string numbers;
    std::vector<int> counts(kSamples);
    for (const int sample : mine) {
      numbers += " " + std::to_string(sample);
      ++counts[static_cast<std::size_t>(sample)];
    }
    std::printf("epoch %u: rank %d has %zu samples,%s\n", epoch, comm.rank(), mine.size(),
                numbers.c_str());
    comm.all_reduce(counts);
    if (comm.rank() == 0) {
      const bool once = std::ranges::all_of(counts, [](int count) { return count == 1; });
      std::printf("epoch %u: together %s\n", epoch, once ? "each sample once" : "something else");
    }
  }
}
