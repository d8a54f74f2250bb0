// A call in NCCL's terms: what one rank launches as one group. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ring/call/plane.h"

namespace dlaunch {

struct NcclStep {
  enum class Kind { copy, all_reduce, reduce, broadcast, reduce_scatter, all_gather, send, recv };
  Kind kind = Kind::copy;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements, as NCCL's function of that name takes them
  int peer = -1;          // or the root

  bool operator==(const NcclStep&) const = default;
};

// Copies first: they stay on the device and are no part of the group. A world of one has nothing
// else. What moves no element is left out.
std::vector<NcclStep> nccl_steps(const Call& call, int rank, int ranks);

// "ncclAllReduce"; "ncclSend, ncclRecv".
std::string nccl_functions(const std::vector<NcclStep>& steps);

// NCCL's numbers for them (ncclDataType_t, ncclRedOp_t); -1: it has none.
int nccl_dtype(dl_dtype dtype);
int nccl_op(dl_op op);

}  // namespace dlaunch
