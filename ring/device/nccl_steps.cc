#include "ring/device/nccl_steps.h"

#include <iterator>

#include "ring/kernels/reduce.h"

namespace dlaunch {
namespace {

const void* element_at(const void* base, std::size_t index, dl_dtype dtype) {
  return base == nullptr ? nullptr : static_cast<const char*>(base) + index * dtype_bytes(dtype);
}
void* element_at(void* base, std::size_t index, dl_dtype dtype) {
  return const_cast<void*>(element_at(static_cast<const void*>(base), index, dtype));
}

using Kind = NcclStep::Kind;

// The collectives that NCCL has.
const Kind* own_kind(const Call& call) {
  static constexpr Kind kKinds[] = {
      /* all_reduce */ Kind::all_reduce, /* reduce_scatter */ Kind::reduce_scatter,
      /* all_gather */ Kind::all_gather, /* broadcast */ Kind::broadcast};
  if (call.collective == Collective::reduce) {
    static constexpr Kind kReduce = Kind::reduce;
    return &kReduce;
  }
  const auto index = static_cast<std::size_t>(call.collective);
  return call.counts == nullptr && index < std::size(kKinds) ? &kKinds[index] : nullptr;
}

// A reduce_scatter of parts that differ is one reduce for each part.
std::vector<NcclStep> reduce_steps(const Call& call, int rank, int ranks) {
  const Shape shape = shape_of(call, ranks);
  std::vector<NcclStep> steps;
  for (int r = 0; r < ranks; ++r) {
    const Part part = part_of(shape, r);
    if (part.count == 0) continue;
    const void* const in = element_at(call.in, part.first, call.dtype);
    steps.push_back({Kind::reduce, in, r == rank ? call.out : nullptr, part.count, r});
  }
  return steps;
}

// All other collectives are sends and receives between the ranks.
std::vector<NcclStep> exchange_steps(const Call& call, int rank, int ranks) {
  const Shape shape = shape_of(call, ranks);
  std::vector<NcclStep> steps;
  const Delivery own = delivery(shape, rank, rank);
  const void* const from = element_at(call.in, own.from, call.dtype);
  void* const to = element_at(call.out, own.to, call.dtype);
  if (own.exists && own.count > 0 && from != to) steps.push_back({Kind::copy, from, to, own.count});
  for (int r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    const Delivery given = delivery(shape, rank, r);
    if (given.exists && given.count > 0) {
      const void* const in = element_at(call.in, given.from, call.dtype);
      steps.push_back({Kind::send, in, nullptr, given.count, r});
    }
    const Delivery taken = delivery(shape, r, rank);
    if (taken.exists && taken.count > 0) {
      void* const out = element_at(call.out, taken.to, call.dtype);
      steps.push_back({Kind::recv, nullptr, out, taken.count, r});
    }
  }
  return steps;
}

}  // namespace

std::vector<NcclStep> nccl_steps(const Call& call, int rank, int ranks) {
  std::vector<NcclStep> steps;
  const Kind* kind = own_kind(call);
  static constexpr Kind kCopy = Kind::copy;
  if (ranks == 1) kind = &kCopy;
  const auto add = [&](const void* in, void* out, std::size_t count) {
    if (count == 0 || (*kind == Kind::copy && in == out)) return;
    steps.push_back({*kind, in, out, count, *kind == Kind::copy ? -1 : call.root});
  };
  if (call.collective == Collective::barrier) return steps;
  if (kind == nullptr) {
    const bool reduces = call.collective == Collective::reduce_scatter;
    return reduces ? reduce_steps(call, rank, ranks) : exchange_steps(call, rank, ranks);
  }
  if (call.list == nullptr) {
    add(call.in, call.out, call.count);
    return steps;
  }
  const TensorList& list = *call.list;
  for (std::size_t i = 0, begin = 0; i < list.ends.size(); begin = list.ends[i++]) {
    add(list.in[i], list.out[i], list.ends[i] - begin);
  }
  return steps;
}

std::string nccl_functions(const std::vector<NcclStep>& steps) {
  static constexpr const char* kNames[] = {
      /* copy */ "",
      /* all_reduce */ "ncclAllReduce",
      /* reduce */ "ncclReduce",
      /* broadcast */ "ncclBroadcast",
      /* reduce_scatter */ "ncclReduceScatter",
      /* all_gather */ "ncclAllGather",
      /* send */ "ncclSend",
      /* recv */ "ncclRecv",
  };
  bool used[std::size(kNames)] = {};
  for (const NcclStep& step : steps) used[static_cast<std::size_t>(step.kind)] = true;
  std::string names;
  for (std::size_t kind = 1; kind < std::size(kNames); ++kind) {
    if (used[kind]) names += (names.empty() ? "" : ", ") + std::string(kNames[kind]);
  }
  return names;
}

int nccl_dtype(dl_dtype dtype) {
  constexpr int kTypes[] = {/* int8 */ 0,
                            /* uint8 */ 1,
                            /* int32 */ 2,
                            /* uint32 */ 3,
                            /* int64 */ 4,
                            /* uint64 */ 5,
                            /* half */ 6,
                            /* bfloat16 */ 9,
                            /* float */ 7,
                            /* double */ 8,
                            /* complex64 */ 7,
                            /* complex128 */ 8,
                            /* float8, which it only moves */ 1,
                            1};
  return static_cast<std::size_t>(dtype) < std::size(kTypes) ? kTypes[dtype] : -1;
}

std::size_t nccl_numbers(dl_dtype dtype) { return is_complex(dtype) ? 2 : 1; }

int nccl_op(dl_op op) { return op >= DL_SUM && op <= DL_AVG ? static_cast<int>(op) : -1; }

}  // namespace dlaunch
