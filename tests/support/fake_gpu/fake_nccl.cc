// An imitation of libnccl.so.2 for tests: see fake_gpu.h. Ranks are threads or processes of one
// machine, which meet in a memfd that the maker of the unique id holds open.
#include <fcntl.h>
#include <nccl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "fake_gpu.h"
#include "fake_values.h"

namespace {

constexpr int kRanks = 8;
constexpr std::size_t kRoom = 8 << 20;  // bytes that a rank can give at once

struct Call {
  int kind, dtype, op, root;
  std::size_t count;
};
enum Kind { all_reduce, reduce, broadcast, reduce_scatter, all_gather };

// The data that the ranks share. `stage` grows by two with each collective: come, and gone.
struct Pair {
  std::atomic<std::uint64_t> sent, taken;
  std::size_t bytes;
};
struct Rank {
  std::atomic<int> here;
  std::atomic<int> gpu;
  std::atomic<std::uint64_t> stage;
  Call call;
  Pair to[kRanks];
};
struct Shared {
  Rank ranks[kRanks];
  char room[kRanks][kRoom];
};

void nap() { ::poll(nullptr, 0, 1); }

// Whether FAKE_NCCL commands this failure.
bool commanded_failure(int rank, std::uint64_t op, const char* what) {
  const char* const all = std::getenv("FAKE_NCCL");
  if (all == nullptr) return false;
  const std::string wanted = std::to_string(rank) + ":" + std::to_string(op) + ":" + what;
  const std::string any = std::to_string(rank) + ":0:" + what;
  const std::string list = "," + std::string(all) + ",";
  const bool once = std::string(what).find("init") == 0 || std::string(what).find("abort") == 0;
  return list.find("," + (once ? any : wanted) + ",") != std::string::npos;
}

std::size_t dtype_size(int dtype) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[dtype];
}

}  // namespace

struct ncclComm {
  Shared* shared;
  int rank, size;
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<bool> aborted{false};
  std::atomic<int> working{0};
  std::uint64_t groups = 0, collectives = 0;
  std::uint64_t sent[kRanks] = {}, taken[kRanks] = {};
  // Of ncclRedOpCreatePreMulSum(); NaN: free.
  std::vector<double> factors;
};

namespace {

template <class Ready>
bool await(ncclComm& comm, Ready ready) {
  while (!ready()) {
    if (comm.aborted) return false;
    nap();
  }
  return true;
}

struct Part {
  enum { collective, send, recv } what;
  Call call;
  const char* in;
  char* out;
  int peer;
  double factor = 1;
};

std::atomic<std::size_t> broadcast_to_here{0};

void compute(ncclComm& comm, const Part& part) {
  const Call& call = part.call;
  const std::size_t bytes = call.count * dtype_size(call.dtype);
  const auto rooms = [&](std::size_t from) {
    std::vector<const char*> inputs;
    for (int r = 0; r < comm.size; ++r) inputs.push_back(comm.shared->room[r] + from);
    return inputs;
  };
  if (call.kind == broadcast) {
    std::memcpy(part.out, comm.shared->room[call.root], bytes);
    if (comm.rank != call.root) broadcast_to_here += bytes;
  } else if (call.kind == all_gather) {
    for (int r = 0; r < comm.size; ++r) {
      std::memcpy(part.out + static_cast<std::size_t>(r) * bytes, comm.shared->room[r], bytes);
    }
  } else if (call.kind != reduce || call.root == comm.rank) {
    const std::size_t from =
        call.kind == reduce_scatter ? static_cast<std::size_t>(comm.rank) * bytes : 0;
    fake_reduce(rooms(from), part.out, call.count, call.dtype, call.op);
  }
}

void run_collective(ncclComm& comm, const Part& part) {
  const std::uint64_t stage = 2 * comm.collectives++;
  const auto at_least = [&](std::uint64_t wanted) {
    return std::all_of(comm.shared->ranks, comm.shared->ranks + comm.size,
                       [&](const Rank& rank) { return rank.stage >= wanted; });
  };
  Rank& own = comm.shared->ranks[comm.rank];
  const std::size_t parts =
      part.call.kind == reduce_scatter ? static_cast<std::size_t>(comm.size) : 1;
  const std::size_t bytes = part.call.count * dtype_size(part.call.dtype) * parts;
  if (bytes > kRoom) {
    std::fprintf(stderr, "fake NCCL: %zu bytes are more than it takes\n", bytes);
    std::abort();
  }
  own.call = part.call;
  if (part.call.kind != broadcast || comm.rank == part.call.root) {
    std::memcpy(comm.shared->room[comm.rank], part.in, bytes);
    if (part.factor != 1) {
      fake_scale(comm.shared->room[comm.rank], part.call.count * parts, part.call.dtype,
                 part.factor);
    }
  }
  own.stage = stage + 1;
  if (!await(comm, [&] { return at_least(stage + 1); })) return;
  for (int r = 0; r < comm.size; ++r) {
    if (std::memcmp(&comm.shared->ranks[r].call, &own.call, sizeof own.call) == 0) continue;
    std::fprintf(stderr, "fake NCCL: rank %d and rank %d make different calls\n", comm.rank, r);
    std::abort();
  }
  compute(comm, part);
  own.stage = stage + 2;
  await(comm, [&] { return at_least(stage + 2); });
}

char* pair_room(ncclComm& comm, int from, int to) {
  return comm.shared->room[from] + static_cast<std::size_t>(to) * (kRoom / kRanks);
}

void run_exchange(ncclComm& comm, const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    if (part.what != Part::send) continue;
    Pair& pair = comm.shared->ranks[comm.rank].to[part.peer];
    pair.bytes = part.call.count * dtype_size(part.call.dtype);
    if (pair.bytes > kRoom / kRanks) std::abort();
    std::memcpy(pair_room(comm, comm.rank, part.peer), part.in, pair.bytes);
    pair.sent = ++comm.sent[part.peer];
  }
  for (const Part& part : parts) {
    if (part.what != Part::recv) continue;
    Pair& pair = comm.shared->ranks[part.peer].to[comm.rank];
    const std::uint64_t number = ++comm.taken[part.peer];
    if (!await(comm, [&] { return pair.sent >= number; })) return;
    if (pair.bytes != part.call.count * dtype_size(part.call.dtype)) std::abort();
    std::memcpy(part.out, pair_room(comm, part.peer, comm.rank), pair.bytes);
    pair.taken = number;
  }
  for (const Part& part : parts) {
    if (part.what != Part::send) continue;
    Pair& pair = comm.shared->ranks[comm.rank].to[part.peer];
    await(comm, [&] { return pair.taken >= comm.sent[part.peer]; });
  }
}

struct Group {
  ncclComm* comm = nullptr;
  CUstream stream = nullptr;
  std::vector<Part> parts;
};
thread_local int t_depth = 0;
thread_local Group t_group;

void run_group(ncclComm& comm, const Group& group, std::uint64_t number) {
  if (commanded_failure(comm.rank, number, "kill")) ::raise(SIGKILL);
  const bool fails = commanded_failure(comm.rank, number, "async_error");
  if (fails) comm.state = ncclRemoteError;
  if (fails || commanded_failure(comm.rank, number, "wedge")) {
    await(comm, [] { return false; });
    return;
  }
  std::vector<Part> exchange;
  for (const Part& part : group.parts) {
    if (part.what == Part::collective)
      run_collective(comm, part);
    else
      exchange.push_back(part);
  }
  if (!exchange.empty()) run_exchange(comm, exchange);
}

std::atomic<int> launches{0};

ncclResult_t launch(Group group) {
  ncclComm& comm = *group.comm;
  ++launches;
  const std::uint64_t number = comm.groups++;
  if (commanded_failure(comm.rank, number, "launch_error")) return ncclUnhandledCudaError;
  ++comm.working;
  fake_gpu_enqueue(group.stream, [&comm, group, number] {
    if (!comm.aborted) run_group(comm, group, number);
    --comm.working;
  });
  return ncclSuccess;
}

ncclResult_t add(ncclComm_t comm, CUstream stream, Part part) {
  // The device plane must never give buffers that are not a GPU's.
  const bool reads = part.what == Part::collective || part.what == Part::send;
  const auto view = [](const void* at) { return static_cast<char*>(fake_gpu_view(at)); };
  if (reads && part.in != nullptr && (part.in = view(part.in)) == nullptr)
    return ncclInvalidArgument;
  if (part.out != nullptr && (part.out = view(part.out)) == nullptr) return ncclInvalidArgument;
  if (t_depth == 0) return ncclInvalidUsage;  // the plane launches groups
  t_group.comm = comm;
  t_group.stream = stream;
  t_group.parts.push_back(part);
  return ncclSuccess;
}

ncclResult_t collective(Kind kind, const void* in, void* out, std::size_t count, int dtype, int op,
                        int root, ncclComm_t comm, CUstream stream) {
  const bool multiplies = op >= ncclNumOps;
  const double factor =
      multiplies ? comm->factors.at(static_cast<std::size_t>(op - ncclNumOps)) : 1;
  if (factor != factor) return ncclInvalidArgument;
  return add(comm, stream,
             {Part::collective,
              {kind, dtype, multiplies ? ncclSum : op, root, count},
              static_cast<const char*>(in),
              static_cast<char*>(out),
              -1,
              factor});
}

}  // namespace

int fake_nccl_launches() { return launches; }
std::size_t fake_nccl_broadcast_to_here() { return broadcast_to_here; }

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an error of the fake NCCL";
}

const char* ncclGetLastError(ncclComm_t) { return "by command"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const int fd = ::memfd_create("fake NCCL", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, sizeof(Shared)) != 0) return ncclSystemError;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", ::getpid(), fd);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = nullptr;
  const int fd = ::open(id.internal, O_RDWR | O_CLOEXEC);
  if (fd < 0 || size > kRanks || fake_gpu_current() < 0) return ncclInvalidUsage;
  void* const shared = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (shared == MAP_FAILED) return ncclSystemError;
  if (config == nullptr || config->blocking != 0) return ncclInvalidArgument;  // it could hang
  *comm = new ncclComm;
  (*comm)->shared = static_cast<Shared*>(shared);
  (*comm)->rank = rank;
  (*comm)->size = size;
  Rank& own = (*comm)->shared->ranks[rank];
  own.gpu = fake_gpu_current();
  if (!commanded_failure(rank, 0, "init_wedge")) own.here = 1;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (comm->state == ncclInProgress) {
    bool all = true;
    for (int a = 0; a < comm->size; ++a) {
      const Rank& rank = comm->shared->ranks[a];
      all &= rank.here != 0;
      for (int b = 0; b < a; ++b) {
        const bool twice = rank.here != 0 && comm->shared->ranks[b].here != 0 &&
                           comm->shared->ranks[b].gpu == rank.gpu;
        if (twice) comm->state = ncclInvalidUsage;
      }
    }
    if (commanded_failure(comm->rank, 0, "init_error")) {
      comm->state = ncclSystemError;
    } else if (all && comm->state == ncclInProgress) {
      comm->state = ncclSuccess;
    }
  }
  *state = comm->state;
  return ncclSuccess;
}

// Blocks, like NCCL's own ncclCommInitRank.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t state = ncclCommInitRankConfig(comm, size, id, rank, &config);
  while (state == ncclInProgress) {
    nap();
    ncclCommGetAsyncError(*comm, &state);
  }
  return state;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return ncclCommAbort(comm); }

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  while (commanded_failure(comm->rank, 0, "abort_hang")) nap();
  comm->aborted = true;
  while (comm->working > 0) nap();
  ::munmap(comm->shared, sizeof(Shared));
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (t_depth++ == 0) t_group = {};
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--t_depth > 0 || t_group.parts.empty()) return ncclSuccess;
  return launch(std::move(t_group));
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t dtype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  if (residence != ncclScalarHostImmediate || dtype < ncclFloat16) return ncclInvalidArgument;
  *op = static_cast<ncclRedOp_t>(ncclNumOps + comm->factors.size());
  comm->factors.push_back(fake_factor(scalar, dtype));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  comm->factors.at(static_cast<std::size_t>(op - ncclNumOps)) =
      std::numeric_limits<double>::quiet_NaN();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective(all_reduce, in, out, count, dtype, op, -1, comm, stream);
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t dtype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return collective(reduce, in, comm->rank == root ? out : nullptr, count, dtype, op, root, comm,
                    stream);
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(broadcast, in, out, count, dtype, 0, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t dtype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective(reduce_scatter, in, out, count, dtype, op, -1, comm, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t dtype,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(all_gather, in, out, count, dtype, 0, -1, comm, stream);
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream,
             {Part::send, {0, dtype, 0, -1, count}, static_cast<const char*>(in), nullptr, peer});
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, stream,
             {Part::recv, {0, dtype, 0, -1, count}, nullptr, static_cast<char*>(out), peer});
}
