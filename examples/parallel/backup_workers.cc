// Backup workers: in each step the first k of n gradients count, and the server does not wait for
// the others.
//
//   $ c++ -std=c++20 -O2 backup_workers.cc $(dlaunch --cflags --libs) -o backup_workers
//   $ dlaunch --nproc 4 ./backup_workers
//   [0] waits for 3 of 3: 60 steps in … ms, rank 3 in 60 of them, 0 late gradients dropped, learned
//   [0] waits for 2 of 3: 60 steps in … ms, rank 3 in … of them, … late gradients dropped, learned
//
// One slow worker (a straggler) slows down every step of a synchronous training. If the server
// waits for one gradient less than there are workers, one straggler slows down no step. The server
// drops a gradient that comes after the end of its step. So no gradient is stale, unlike in an
// asynchronous training. The price is the work for the dropped gradients. (Chen et al.,
// "Revisiting Distributed Synchronous SGD", 2016.) Here rank 3 is the slow worker.
#include <chrono>
#include <cstdio>
#include <set>
#include <vector>

#include <dlaunch/ring.hpp>

#include "workers.h"

namespace {

constexpr int kSteps = 60;

struct Result {
  Vector weights = Vector(kFeatures);
  int slow_counted = 0;  // gradients of the last rank
  int dropped = 0;
};

Result serve(dl::Communicator& comm, int needed) {
  Result result;
  Vector received(1 + kFeatures);
  const int workers = comm.size() - 1;
  std::set<int> idle;
  for (int worker = 1; worker <= workers; ++worker) idle.insert(worker);
  for (int step = 0; step < kSteps; ++step) {
    for (const int worker : idle) comm.send(message(step, result.weights), worker);
    idle.clear();
    Vector next = result.weights;
    while (static_cast<int>(idle.size()) < needed) {
      const int source = comm.recv_any(received);
      if (static_cast<int>(received[0]) == step) {
        add_values(received, -kRate / needed, next);
        result.slow_counted += source == workers;
        idle.insert(source);
      } else {  // it is late: that worker goes on with the present weights
        ++result.dropped;
        comm.send(message(step, result.weights), source);
      }
    }
    result.weights = next;
  }
  while (static_cast<int>(idle.size()) < workers) {  // gradients still on their way
    idle.insert(comm.recv_any(received));
    ++result.dropped;
  }
  for (const int worker : idle) comm.send(end_message(), worker);
  return result;
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  const int workers = comm.size() - 1;
  for (const int needed : {workers, workers - 1}) {
    comm.barrier();
    if (comm.rank() != kServer) {
      work(comm, comm.rank() == workers);
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    const Result result = serve(comm, needed);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf(
        "waits for %d of %d: %d steps in %.0f ms, rank %d in %d of them, %d late gradients "
        "dropped, %s\n",
        needed, workers, kSteps, took.count() * 1e3, workers, result.slow_counted, result.dropped,
        verdict(result.weights));
  }
}
