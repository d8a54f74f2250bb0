// A rank of four on the imitation of NCCL: the rank $CULPRIT gets stuck in its own code before a
// collective, and a watchdog ends the others with the words of PyTorch's.
#include <cuda.h>
#include <nccl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

namespace {

void must(bool well, const char* what) {
  if (well) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::_Exit(70);
}

int number(const char* name) { return std::atoi(std::getenv(name)); }

// Rank 0 writes it into the current folder, under its last name once it is whole.
ncclUniqueId meet(int rank) {
  ncclUniqueId id;
  if (rank == 0) {
    must(ncclGetUniqueId(&id) == ncclSuccess, "ncclGetUniqueId");
    std::ofstream("id.new", std::ios::binary).write(id.internal, sizeof id.internal);
    must(std::rename("id.new", "id") == 0, "rename");
    return id;
  }
  for (std::ifstream file; !file.is_open(); file.open("id", std::ios::binary)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::ifstream("id", std::ios::binary).read(id.internal, sizeof id.internal);
  return id;
}

[[gnu::noinline]] void get_stuck(const std::string& kind) {
  std::mutex mutex;
  volatile unsigned turns = 0;
  int ends[2];
  char byte = 0;
  if (kind == "lock") mutex.lock(), mutex.lock();
  if (kind == "sleep") ::sleep(1000);
  while (kind == "loop") turns = turns + 1;
  if (kind == "read" && ::pipe(ends) == 0) turns = static_cast<unsigned>(::read(ends[0], &byte, 1));
  if (kind == "stopped") ::raise(SIGSTOP);
}

// Like ProcessGroupNCCL's: it ends the process, whatever the main thread does.
void watch(int rank, const std::atomic<bool>& done) {
  for (int i = 0; i < 200 && !done; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (done) return;
  std::fprintf(stderr,
               "[Rank %d] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
               "OpType=ALLREDUCE, Timeout(ms)=2000) ran for 2003 milliseconds before timing out.\n",
               rank);
  std::abort();
}

}  // namespace

int main() {
  const int rank = number("RANK"), size = number("WORLD_SIZE");
  CUdevice gpu = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  must(::cuInit(0) == CUDA_SUCCESS, "cuInit");
  must(::cuDeviceGet(&gpu, rank) == CUDA_SUCCESS, "cuDeviceGet");
  must(::cuDevicePrimaryCtxRetain(&context, gpu) == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
  must(::cuCtxPushCurrent(context) == CUDA_SUCCESS, "cuCtxPushCurrent");
  must(::cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "cuStreamCreate");
  must(::cuMemAlloc(&memory, sizeof(float)) == CUDA_SUCCESS, "cuMemAlloc");
  ncclComm_t comm = nullptr;
  must(ncclCommInitRank(&comm, size, meet(rank), rank) == ncclSuccess, "ncclCommInitRank");
  if (rank == number("CULPRIT")) get_stuck(std::getenv("KIND"));
  std::atomic<bool> done = false;
  std::thread watchdog([&] { watch(rank, done); });
  void* const data = reinterpret_cast<void*>(memory);
  must(ncclGroupStart() == ncclSuccess, "ncclGroupStart");
  const auto sent = ncclAllReduce(data, data, 1, ncclFloat, ncclSum, comm,
                                  reinterpret_cast<cudaStream_t>(stream));
  must(sent == ncclSuccess && ncclGroupEnd() == ncclSuccess, "ncclAllReduce");
  must(::cuStreamSynchronize(stream) == CUDA_SUCCESS, "cuStreamSynchronize");
  done = true;
  watchdog.join();
  return 0;
}
