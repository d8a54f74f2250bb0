// A call in NCCL's terms: the steps that one rank launches as one group. Pure.
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
  std::size_t count = 0;  // elements, as the NCCL function takes them
  int peer = -1;          // or the root

  bool operator==(const NcclStep&) const = default;
};

// Copies come first: they stay on the device, outside the group. A world of one has only copies.
// Steps without elements are left out.
std::vector<NcclStep> nccl_steps(const Call& call, int rank, int ranks);

// "ncclAllReduce"; "ncclSend, ncclRecv".
std::string nccl_functions(const std::vector<NcclStep>& steps);

// NCCL's numbers for them (ncclDataType_t, ncclRedOp_t); -1: NCCL lacks it.
int nccl_dtype(dl_dtype dtype);
// How many numbers of that type an element has: two of a complex one.
std::size_t nccl_numbers(dl_dtype dtype);
int nccl_op(dl_op op);  // not for kPremulSum: the factor of the call makes one

}  // namespace dlaunch
