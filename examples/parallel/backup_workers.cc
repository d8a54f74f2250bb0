// Backup workers: in each step the first k of n gradients count, and no rank waits for the others.
//
//   $ c++ -std=c++20 -O2 backup_workers.cc $(dlaunch --cflags --libs) -o backup_workers
//   $ dlaunch --nproc 4 ./backup_workers
//   [0] waits for 4 of 4:          60 steps in … ms, rank 3 in 60 of them, learned
//   [0] waits for 3 of 4, drops:   60 steps in … ms, rank 3 in … of them, learned
//   [0] waits for 3 of 4, carries: 60 steps in … ms, rank 3 in … of them, learned
//
// One slow worker (a straggler) slows down every step of a synchronous training. If each step waits
// for one gradient less than there are workers, one straggler slows down no step:
// all_reduce_some() is over once that many have come. A rank that comes later gets the mean of the
// others, so that all ranks keep the same weights. Its own gradient is dropped, and no gradient is
// stale, unlike in an asynchronous training. The price is the work for the dropped gradients.
// (Chen et al., "Revisiting Distributed Synchronous SGD", 2016.) Or it is carried: it counts, one
// or more steps too late. (Li et al., "Taming Unbalanced Training Workloads in Deep Learning with
// Partial Collective Operations", 2020.) Here rank 3 needs three times as long as the others.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <dlaunch/ring.hpp>

#include "workers.h"

namespace {

constexpr int kSteps = 60, kRepeats = 400;  // repeats: a gradient takes some milliseconds

struct Result {
  Vector weights = Vector(kFeatures);
  int counted = 0;  // steps with gradients of the last rank
};

Result train(dl::Communicator& comm, const dl::SomeOptions& options) {
  const int last = comm.size() - 1, repeats = comm.rank() == last ? 3 * kRepeats : kRepeats;
  const auto samples = own_samples(comm.rank());
  Result result;
  Vector mean(kFeatures);
  dl_fate fate = DL_FATE_NONE;
  for (int step = 0; step < kSteps; ++step) {
    // The other ranks are ahead: take what they have got before computing with old weights.
    const bool catches_up = comm.some_behind() > 0 || fate == DL_FATE_CARRIED;
    dl::SomeOutcome outcome;
    if (catches_up) {
      outcome = comm.all_reduce_some(nullptr, mean, options, dl::Op::avg);
    } else {
      const Vector gradient = gradient_of(samples, message(step, result.weights), repeats);
      outcome = comm.all_reduce_some(gradient, mean, options, dl::Op::avg);
    }
    fate = outcome.fate;
    result.counted += outcome.given[static_cast<std::size_t>(last)] > 0;
    for (std::size_t k = 0; k < kFeatures; ++k) result.weights[k] -= kRate * mean[k];
  }
  return result;
}

}  // namespace

int main() {
  auto comm = dl::Communicator::init();
  const int size = comm.size();
  struct Way {
    const char* name;
    int needed;
    dl_late late;
  };
  for (const Way& way :
       {Way{":         ", size, DL_LATE_DROP}, Way{", drops:  ", size - 1, DL_LATE_DROP},
        Way{", carries:", size - 1, DL_LATE_CARRY}}) {
    dl::SomeOptions options(way.needed);
    options.late = way.late;
    comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    const Result result = train(comm, options);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (comm.rank() != 0) continue;
    std::printf("waits for %d of %d%s %d steps in %.0f ms, rank %d in %d of them, %s\n", way.needed,
                size, way.name, kSteps, took.count() * 1e3, size - 1, result.counted,
                verdict(result.weights));
  }
}
