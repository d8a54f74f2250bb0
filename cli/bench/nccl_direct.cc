#include "cli/bench/nccl_direct.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/symbols.h"
#include "cli/bench/gpu_memory.h"
#include "cli/bench/measure.h"

namespace bench {
namespace {

struct UniqueId {
  char bytes[128];
};

// As in gpu_memory.cc, with the types of its stable binary interface. 0 is success.
struct Nccl {
  int (*get_version)(int*);
  int (*get_unique_id)(UniqueId*);
  int (*comm_init_rank)(void**, int, UniqueId, int);
  int (*comm_destroy)(void*);
  const char* (*get_error_string)(int);
  int (*group_start)();
  int (*group_end)();
  int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, void*);
  int (*reduce)(const void*, void*, std::size_t, int, int, int, void*, void*);
  int (*broadcast)(const void*, void*, std::size_t, int, int, void*, void*);
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, void*, void*);
  int (*all_gather)(const void*, void*, std::size_t, int, void*, void*);
};

Nccl g_nccl;  // set by start()

std::string load_nccl(Nccl& nccl) {
  dlaunch::SymbolReader symbols{.library = dlaunch::open_library("libnccl.so.2")};
  if (symbols.library == nullptr) return "there is no libnccl.so.2";
  symbols.read(nccl.get_version, "ncclGetVersion");
  symbols.read(nccl.get_unique_id, "ncclGetUniqueId");
  symbols.read(nccl.comm_init_rank, "ncclCommInitRank");
  symbols.read(nccl.comm_destroy, "ncclCommDestroy");
  symbols.read(nccl.get_error_string, "ncclGetErrorString");
  symbols.read(nccl.group_start, "ncclGroupStart");
  symbols.read(nccl.group_end, "ncclGroupEnd");
  symbols.read(nccl.all_reduce, "ncclAllReduce");
  symbols.read(nccl.reduce, "ncclReduce");
  symbols.read(nccl.broadcast, "ncclBroadcast");
  symbols.read(nccl.reduce_scatter, "ncclReduceScatter");
  symbols.read(nccl.all_gather, "ncclAllGather");
  return symbols.missing == nullptr ? "" : "libnccl.so.2 lacks functions";
}

// The message of each rank to the others.
struct Told {
  std::int32_t version = 0;
  char gpu[16] = "";
  char lacks[108] = "";
};

std::string why_not(const std::vector<Told>& ranks) {
  const auto rank = [](std::size_t r) { return "rank " + std::to_string(r); };
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].lacks[0] != '\0') return rank(r) + ": " + ranks[r].lacks;
  }
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    if (ranks[a].version != ranks[0].version) return rank(a) + " has another NCCL than rank 0";
    for (std::size_t b = a + 1; b < ranks.size(); ++b) {
      if (std::memcmp(ranks[a].gpu, ranks[b].gpu, sizeof ranks[a].gpu) != 0) continue;
      return rank(a) + " and " + rank(b) + " share one GPU";
    }
  }
  return "";
}

// ncclDataType_t by dl_dtype.
constexpr int kTypes[] = {0, 1, 2, 3, 4, 5, 6, 9, 7, 8};

}  // namespace

bool NcclDirect::has(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::all_gather ||
         kind == Kind::broadcast || kind == Kind::reduce;
}

std::unique_ptr<NcclDirect> NcclDirect::start(dl_comm* comm, std::string& text) {
  Told own;
  std::string lacks = load_nccl(g_nccl);
  if (lacks.empty() && g_nccl.get_version(&own.version) != 0) lacks = "NCCL has no version";
  if (lacks.empty() && !gpu_uuid(own.gpu)) lacks = "the CUDA driver does not tell GPUs apart";
  lacks.copy(own.lacks, sizeof own.lacks - 1);
  std::vector<Told> all(static_cast<std::size_t>(dl_size(comm)));
  require(dl_all_gather(comm, &own, all.data(), sizeof own, DL_UINT8), comm);
  text = why_not(all);
  if (!text.empty()) return nullptr;

  UniqueId id{};
  std::int32_t failed = dl_rank(comm) == 0 ? g_nccl.get_unique_id(&id) : 0;
  require(dl_broadcast(comm, &id, sizeof id, DL_UINT8, 0), comm);
  require(dl_all_reduce(comm, &failed, &failed, 1, DL_INT32, DL_MAX), comm);
  void* made = nullptr;
  if (failed == 0) failed = g_nccl.comm_init_rank(&made, dl_size(comm), id, dl_rank(comm));
  require(dl_all_reduce(comm, &failed, &failed, 1, DL_INT32, DL_MAX), comm);
  if (failed != 0) {
    text = std::string("NCCL: ") + g_nccl.get_error_string(failed);
    return nullptr;
  }
  text = std::to_string(own.version / 10000) + "." + std::to_string(own.version / 100 % 100) + "." +
         std::to_string(own.version % 100);
  return std::unique_ptr<NcclDirect>(new NcclDirect(made));
}

NcclDirect::~NcclDirect() { g_nccl.comm_destroy(comm_); }

bool NcclDirect::serves(const Case& c) const { return !info(c.kind).reduces || c.op <= DL_AVG; }

void NcclDirect::put(const Case& c, const void* in, void* out) {
  const auto done = [](int result) {
    if (result != 0)
      throw std::runtime_error(std::string("NCCL: ") + g_nccl.get_error_string(result));
  };
  const int type = kTypes[c.dtype];
  done(g_nccl.group_start());
  int result = 0;
  switch (c.kind) {
    case Kind::all_reduce:
      result = g_nccl.all_reduce(in, out, c.count, type, c.op, comm_, nullptr);
      break;
    case Kind::reduce_scatter:
      result = g_nccl.reduce_scatter(in, out, c.count, type, c.op, comm_, nullptr);
      break;
    case Kind::all_gather:
      result = g_nccl.all_gather(in, out, c.count, type, comm_, nullptr);
      break;
    case Kind::broadcast:
      result = g_nccl.broadcast(in, const_cast<void*>(in), c.count, type, c.root, comm_, nullptr);
      break;
    case Kind::reduce:
      result = g_nccl.reduce(in, out, c.count, type, c.op, c.root, comm_, nullptr);
      break;
    default:
      break;
  }
  const int ended = g_nccl.group_end();
  done(result != 0 ? result : ended);
}

}  // namespace bench
