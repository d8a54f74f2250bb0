// A small elastic program with its state on GPUs, on the imitations of tests/support/fake_gpu. Its
// "kernels" are functions that run slowly in a stream, so that a copy that does not wait for them
// goes wrong.
//
// usage: elastic_device_worker [--steps N] [--die-at STEP:RANK] [--share-gpu 1] [--in-place 1]
//                              [--ordered 1] [--snapshot DIR] [--die-given RANK]
//
// --die-at: in that step the process that began as that rank in round 1 kills itself, when the
// others have changed their state already; in place: when they are about to.
// --die-given: the process that began as that rank in round 1 kills itself in round 2, while the
// newcomers receive the state.
// Prints "round R rank R of N: from step S, B by NCCL" (bytes that NCCL broadcast to this process
// in this round's sync) and at the end "rank R of N: step S right". Exits with 66 if the state is
// wrong.
#include <cuda.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlaunch/elastic.hpp>

#include "fake_gpu.h"

namespace {

// More than one piece of a copy.
constexpr std::size_t kSize = 600'000, kGradient = 1000;

struct Options {
  unsigned long steps = 12, die_at = 0;
  int dies = -1, dies_given = -1;
  bool share_gpu = false, in_place = false, ordered = false;
  std::string snapshot;
};

class OnGpu {
 public:
  OnGpu(int gpu, std::size_t count, double value) : count_(count) {
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, gpu);
    cuCtxPushCurrent(context);
    if (cuMemAlloc(&memory_, count * sizeof(double)) != CUDA_SUCCESS) {
      throw std::runtime_error("no memory on the GPU");
    }
    cuCtxPopCurrent(&context);
    std::fill_n(view(), count, value);
  }
  ~OnGpu() { cuMemFree(memory_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  // The address that programs get; they may not access it.
  std::span<double> get() const { return {reinterpret_cast<double*>(memory_), count_}; }
  // For kernels.
  double* view() const { return static_cast<double*>(fake_gpu_view(get().data())); }
  std::size_t size() const { return count_; }

 private:
  const std::size_t count_;
  CUdeviceptr memory_ = 0;
};

dl::StateOptions state_options(const Options& options) {
  dl::StateOptions made;
  made.in_place = options.in_place ? 1 : 0;
  return made;
}

class Worker {
 public:
  Worker(dl::Communicator& comm, const Options& options)
      : comm_(comm),
        options_(options),
        gpu_(options.share_gpu ? 0 : std::atoi(std::getenv("LOCAL_RANK"))),
        state_(comm, state_options(options)),
        w_(gpu_, kSize, 0),
        gradient_(gpu_, kGradient, 0),
        shard_(gpu_, 10, comm.rank()) {
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, gpu_);
    cuCtxPushCurrent(context);
    cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    cuCtxPopCurrent(&context);
    comm_.set_stream(stream_);
    comm_.set_stream_ordered(options.ordered);
    state_.replicated("w", w_.get());
    state_.value("step", step_);
    if (!options.in_place) {
      const auto shard = shard_.get();
      if (dl_state_sharded(state_.get(), "shard", shard.data(), shard.size_bytes(), sizeof(double),
                           nullptr, nullptr) != DL_OK) {
        throw std::runtime_error("the shard was refused");
      }
    }
    if (!options.snapshot.empty()) state_.snapshots(options.snapshot, 4, 2);
  }

  void run() {
    dl::run_elastic(state_, [this] {
      if (told_ != comm_.round()) {
        const std::size_t given = fake_nccl_broadcast_to_here();
        std::printf("round %llu rank %d of %d: from step %lu, %zu by NCCL\n",
                    static_cast<unsigned long long>(comm_.round()), comm_.rank(), comm_.size(),
                    step_, given - given_);
        std::fflush(stdout);
        given_ = given;
        told_ = comm_.round();
      }
      if (step_ == options_.steps) return false;
      step();
      return true;
    });
    check("w", w_, expected());
    if (!options_.in_place) {
      check("shard", shard_, comm_.rank() + static_cast<double>(options_.steps));
    }
    std::printf("rank %d of %d: step %lu right\n", comm_.rank(), comm_.size(), step_);
  }

 private:
  void step() {
    const double mine = comm_.rank() + 1 + static_cast<double>(step_);
    fake_gpu_enqueue(stream_, [this, mine] { std::fill_n(gradient_.view(), kGradient, mine); });
    comm_.all_reduce(gradient_.get());
    if (options_.in_place) die_if_due();
    state_.update();
    fake_gpu_enqueue(stream_, [this] {
      ::usleep(2000);
      double *const w = w_.view(), *const gradient = gradient_.view(), *const shard = shard_.view();
      for (std::size_t i = 0; i < w_.size(); ++i) w[i] += gradient[i % kGradient];
      for (std::size_t i = 0; i < shard_.size(); ++i) shard[i] += 1;
    });
    if (!options_.in_place) die_if_due();
    ++step_;
  }

  void die_if_due() {
    if (first_round_ != 1) return;
    if (first_rank_ == options_.dies && step_ == options_.die_at) ::raise(SIGKILL);
    // By the second group of the next communicator; the first sync used this one's.
    const std::string when = std::to_string(comm_.rank()) + ":1:kill";
    const bool next = first_rank_ == options_.dies_given && step_ + 1 == options_.die_at;
    if (next) ::setenv("FAKE_NCCL", when.c_str(), 1);
  }

  // The result with a constant number of ranks.
  double expected() const {
    const double n = comm_.size(), steps = static_cast<double>(options_.steps);
    return steps * n * (n + 1) / 2 + n * steps * (steps - 1) / 2;
  }

  void check(const char* what, const OnGpu& memory, double value) {
    std::vector<double> got(memory.size());
    comm_.copy(got.data(), memory.get().data(), memory.get().size_bytes());
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] == value) continue;
      std::fprintf(stderr, "rank %d: %s[%zu] is %g, not %g\n", comm_.rank(), what, i, got[i],
                   value);
      ::_exit(66);
    }
  }

  dl::Communicator& comm_;
  const Options& options_;
  const int gpu_;
  dl::State state_;
  OnGpu w_, gradient_, shard_;
  CUstream stream_ = nullptr;
  unsigned long step_ = 0;
  std::uint64_t told_ = 0;
  std::size_t given_ = 0;
  const std::uint64_t first_round_ = comm_.round();
  const int first_rank_ = comm_.rank();
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--steps") {
      o.steps = std::stoul(value);
    } else if (flag == "--die-at") {
      if (std::sscanf(value.c_str(), "%lu:%d", &o.die_at, &o.dies) != 2) {
        throw std::invalid_argument("--die-at needs STEP:RANK");
      }
    } else if (flag == "--die-given") {
      o.dies_given = std::stoi(value);
    } else if (flag == "--share-gpu") {
      o.share_gpu = value == "1";
    } else if (flag == "--in-place") {
      o.in_place = value == "1";
    } else if (flag == "--ordered") {
      o.ordered = value == "1";
    } else if (flag == "--snapshot") {
      o.snapshot = value;
    } else {
      throw std::invalid_argument("unknown flag " + flag);
    }
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    dl::Options joining;
    joining.elastic = 1;
    auto comm = dl::Communicator::init(nullptr, joining);
    Worker(comm, options).run();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "elastic_device_worker: %s\n", e.what());
    return 1;
  }
}
