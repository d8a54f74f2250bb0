// A rank that calls NCCL, without a GPU: it calls the profiler plug-in of NCCL_PROFILER_PLUGIN as
// NCCL does (nccl_host.h), and a thread stands in for the GPU's stream. All ranks make the same
// collectives, except one, in the third.
//
// usage: nccl_program VERSION RANK:FAULT COLLECTIVES    the newest version of plug-ins that NCCL
// knows. FAULT: lacks (the rank does not make the third collective), differs (it makes another
// one), held (its GPU does not begin it), none. SPIN=waits: a rank that waits uses CPU time, as
// CUDA does by default. SPIN=computes: it computes, and needs the results later.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/nccl_host.h"

namespace {

constexpr int kMost = 4096, kThird = 3;

// What the ranks share, in a file of the current folder: how many have come to each collective.
struct Shared {
  std::atomic<int> here[kMost];
};

Shared* meet() {
  const int fd = ::open("shared", O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(Shared)) != 0) std::_Exit(70);
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) std::_Exit(70);
  return static_cast<Shared*>(memory);
}

void nap() { ::poll(nullptr, 0, 1); }

// Carries out what is enqueued, in order.
class Gpu {
 public:
  Gpu(nccl_host::Comm& comm, Shared& shared, int ranks, const std::string& fault)
      : comm_(comm), shared_(shared), ranks_(ranks), fault_(fault), thread_([this] { run(); }) {
    thread_.detach();
  }
  void add(void* operation) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(operation);
    more_.notify_one();
  }
  const int& done() const { return done_; }

 private:
  void run() {
    for (int number = 1;; ++number) {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [this] { return !queue_.empty(); });
      void* const operation = queue_.front();
      queue_.pop_front();
      lock.unlock();
      while (number == kThird && fault_ == "held") nap();
      void* const first = comm_.channel_begins(operation, 0);
      void* const second = comm_.channel_begins(operation, 1);
      // The others wait for their own call, and this one for its.
      while (number == kThird && fault_ == "differs") nap();
      ++shared_.here[number % kMost];
      while (shared_.here[number % kMost] < ranks_) nap();
      comm_.channel_ends(first);
      comm_.channel_ends(second);
      __atomic_store_n(&done_, number, __ATOMIC_RELEASE);
    }
  }

  nccl_host::Comm& comm_;
  Shared& shared_;
  const int ranks_;
  const std::string fault_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<void*> queue_;
  int done_ = 0;
  std::thread thread_;
};

}  // namespace

// The name by which a stack shows that a rank waits for its GPU: it calls no function, so that it
// is the innermost one at any time.
extern "C" [[gnu::noinline]] void cudaStreamSynchronize(const int* done, int number) {
  while (__atomic_load_n(done, __ATOMIC_ACQUIRE) < number) {
  }
}

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  const int rank = std::atoi(std::getenv("RANK")), ranks = std::atoi(std::getenv("WORLD_SIZE"));
  const std::string fault =
      std::atoi(argv[2]) == rank ? std::strchr(argv[2], ':') + 1 : std::string("none");
  const char* const spin = std::getenv("SPIN");
  const std::string spins = spin != nullptr ? spin : "";
  auto* const comm = new nccl_host::Comm(std::getenv("NCCL_PROFILER_PLUGIN"), std::atoi(argv[1]),
                                         0x1234567890abcdef, ranks, rank, "world");
  std::printf("version %d mask %d\n", comm->version(), comm->mask());
  std::fflush(stdout);
  auto* const gpu = new Gpu(*comm, *meet(), ranks, fault);
  for (int number = 1; number <= std::atoi(argv[3]); ++number) {
    if (number == kThird && fault == "lacks") {
      for (;;) ::pause();
    }
    const bool differs = number == kThird && fault == "differs";
    gpu->add(comm->enqueue({.func = differs ? "Broadcast" : "AllReduce", .count = 1000}));
  }
  while (__atomic_load_n(&gpu->done(), __ATOMIC_ACQUIRE) < std::atoi(argv[3])) {
    if (spins.empty()) nap();
    if (spins == "waits") cudaStreamSynchronize(&gpu->done(), std::atoi(argv[3]));
  }
  delete comm;
  std::_Exit(0);
}
