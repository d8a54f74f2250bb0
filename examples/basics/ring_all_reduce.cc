// An all_reduce of our own from isend and irecv, twice: naive and chunked. Both race against the
// library's.
//
//   $ c++ -std=c++20 -O2 ring_all_reduce.cc $(dlaunch --cflags --libs) -o ring_all_reduce
//   $ dlaunch --nproc 4 ./ring_all_reduce
//   [0] microseconds, the best of 5:
//   [0]  elements    naive  chunked  library
//   [0]        64        …        …        …
//   [0]     65536        …        …        …
//   [0]   1048576        …        …        …
//   [0] all three agree
//
// The ranks form a ring: each sends to the next one and receives from the one before. P is the
// number of ranks.
//
// naive: each rank sends its whole array around the ring. In P - 1 steps each rank sees all arrays
// and adds them up. It sends P - 1 times the array.
//
// chunked: the array is cut into P chunks. In P - 1 steps each chunk goes around once and collects
// the sum (reduce-scatter), and in P - 1 more steps the finished chunks go around (all-gather). A
// rank sends 2 (P - 1) / P times the array: less than twice its size, however many ranks there are.
// This is the least that is possible.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <vector>

#include <dlaunch/ring.hpp>

namespace {

using Array = std::vector<float>;
constexpr int kRounds = 5;

// One step of the ring: to the right, and from the left, at the same time.
void shift(dl::Communicator& comm, std::span<const float> outgoing, std::span<float> incoming) {
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  auto sent = comm.isend(outgoing, right);
  comm.irecv(incoming, left).wait();
  sent.wait();
}

void add(std::span<float> total, std::span<const float> more) {
  std::transform(total.begin(), total.end(), more.begin(), total.begin(), std::plus<>());
}

void naive(dl::Communicator& comm, Array& total) {
  Array passing = total, incoming(total.size());
  for (int step = 0; step < comm.size() - 1; ++step) {
    shift(comm, passing, incoming);
    add(total, incoming);
    std::swap(passing, incoming);  // the received array goes on
  }
}

void chunked(dl::Communicator& comm, Array& total) {
  const int rank = comm.rank(), size = comm.size();
  // Chunk i, counted around the ring: chunk -1 is the last one.
  const auto chunk = [&](int i) {
    const std::size_t at = static_cast<std::size_t>((i + 2 * size) % size), n = total.size();
    const std::size_t ranks = static_cast<std::size_t>(size);
    const std::size_t first = n * at / ranks, last = n * (at + 1) / ranks;
    return std::span<float>(total).subspan(first, last - first);
  };
  for (int step = 0; step < size - 1; ++step) {  // reduce-scatter
    const auto mine = chunk(rank - step - 1);
    Array incoming(mine.size());
    shift(comm, chunk(rank - step), incoming);
    add(mine, incoming);
  }
  for (int step = 0; step < size - 1; ++step) {  // all-gather: chunk rank + 1 is finished here
    shift(comm, chunk(rank - step + 1), chunk(rank - step));
  }
}

void library(dl::Communicator& comm, Array& total) { comm.all_reduce(total); }

using AllReduce = void (*)(dl::Communicator&, Array&);

// In microseconds. Checks the result, too.
double best_time(dl::Communicator& comm, AllReduce all_reduce, std::size_t elements) {
  double best = 1e30;
  const auto value = [](std::size_t i) { return static_cast<float>(i % 1000); };
  const auto ranks = static_cast<float>(comm.size());
  for (int round = 0; round < kRounds; ++round) {
    Array x(elements);
    for (std::size_t i = 0; i < elements; ++i) x[i] = value(i) + static_cast<float>(comm.rank());
    comm.barrier();  // so that no rank waits for one that begins later
    const auto begin = std::chrono::steady_clock::now();
    all_reduce(comm, x);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() * 1e6);
    for (std::size_t i = 0; i < elements; ++i) {  // whole numbers: their sums have no rounding
      if (x[i] != ranks * value(i) + ranks * (ranks - 1) / 2) throw std::runtime_error("wrong sum");
    }
  }
  return best;
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  if (comm.rank() == 0) {
    std::printf("microseconds, the best of %d:\n%9s %8s %8s %8s\n", kRounds, "elements", "naive",
                "chunked", "library");
  }
  for (const std::size_t elements : {64, 1 << 16, 1 << 20}) {
    double times[3];
    int i = 0;
    for (const AllReduce way : {naive, chunked, library}) {
      times[i++] = best_time(comm, way, elements);
    }
    if (comm.rank() == 0) {
      std::printf("%9zu %8.0f %8.0f %8.0f\n", elements, times[0], times[1], times[2]);
    }
  }
  if (comm.rank() == 0) std::printf("all three agree\n");
}
