// A parameter server: rank 0 has the weights, and the other ranks compute gradients. The last
// worker is slow.
//
//   $ c++ -std=c++20 -O2 parameter_server.cc $(dlaunch --cflags --libs) -o parameter_server
//   $ dlaunch --nproc 3 ./parameter_server
//   [0] synchronous:  240 gradients, rank 1: 120, rank 2: 120
//   [0] synchronous:  staleness 0.0, … ms, learned
//   [0] asynchronous: 240 gradients, rank 1: …, rank 2: …
//   [0] asynchronous: staleness …, … ms, learned
//
// Synchronous: in each step the server waits for the gradients of all workers. The fast worker
// waits for the slow one.
//
// Asynchronous: the server applies each gradient as soon as it comes and sends that worker the
// newest weights. No worker waits. But a gradient may belong to weights that the server has changed
// since. Staleness counts these changes: the gradients of the slow worker are old when they come,
// and too old ones disturb the training.
#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

#include <dlaunch/ring.hpp>

#include "workers.h"

namespace {

constexpr int kGradients = 240;

struct Result {
  explicit Result(int ranks) : counts(static_cast<std::size_t>(ranks)) {}
  Vector weights = Vector(kFeatures);
  std::vector<int> counts;  // gradients of each rank
  double staleness = 0;     // the sum over all gradients
};

Result synchronous(dl::Communicator& comm) {
  Result result(comm.size());
  Vector received(1 + kFeatures);
  const int workers = comm.size() - 1;
  for (int step = 0; step < kGradients / workers; ++step) {
    for (int worker = 1; worker <= workers; ++worker) {
      comm.send(message(step, result.weights), worker);
    }
    Vector next = result.weights;
    for (int i = 0; i < workers; ++i) {
      ++result.counts[static_cast<std::size_t>(comm.recv_any(received))];
      add_values(received, -kRate / workers, next);
    }
    result.weights = next;
  }
  for (int worker = 1; worker <= workers; ++worker) comm.send(end_message(), worker);
  return result;
}

Result asynchronous(dl::Communicator& comm) {
  Result result(comm.size());
  Vector received(1 + kFeatures);
  const int workers = comm.size() - 1;
  for (int worker = 1; worker <= workers; ++worker) {
    comm.send(message(0, result.weights), worker);
  }
  int asked = workers;
  for (int version = 0; version < kGradients; ++version) {
    const int source = comm.recv_any(received);
    ++result.counts[static_cast<std::size_t>(source)];
    result.staleness += version - received[0];
    add_values(received, -kRate / workers, result.weights);
    const bool more = asked++ < kGradients;
    comm.send(more ? message(version + 1, result.weights) : end_message(), source);
  }
  return result;
}

void run(dl::Communicator& comm, const char* name, Result (*serve)(dl::Communicator&)) {
  comm.barrier();
  if (comm.rank() != kServer) return work(comm, comm.rank() == comm.size() - 1);
  const auto begin = std::chrono::steady_clock::now();
  const Result result = serve(comm);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const int gradients = std::accumulate(result.counts.begin(), result.counts.end(), 0);
  std::printf("%s %d gradients", name, gradients);
  for (std::size_t worker = 1; worker < result.counts.size(); ++worker) {
    std::printf(", rank %zu: %d", worker, result.counts[worker]);
  }
  std::printf("\n%s staleness %.1f, %.0f ms, %s\n", name, result.staleness / gradients,
              took.count() * 1e3, verdict(result.weights));
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  run(comm, "synchronous: ", synchronous);
  run(comm, "asynchronous:", asynchronous);
}
