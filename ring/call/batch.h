// Batch: calls of one rank that wait for the end of their batch, and what becomes of them: small
// reductions and broadcasts of one kind become one call. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ring/call/operation.h"

namespace dlaunch {

struct BatchedCall {
  bool is_message = false;
  KeptCall collective;
  Message message;
  int* source = nullptr;  // for a receive from any rank; may be null
};

struct Batch {
  int depth = 1;                  // how many begins have no end yet
  std::deque<BatchedCall> calls;  // in order
  std::optional<Error> refused;   // the first call that could not become part of it
};

// The largest call that becomes part of another one. Larger ones gain nothing.
inline constexpr std::size_t kMostMergedBytes = 64 << 10;

// The places in `calls` of the collectives, in the order of their first calls; those that are one
// call together. All ranks get the same. may_merge: of a call that this alone would allow.
using MayMerge = std::function<bool(const Call& call)>;
std::vector<std::vector<std::size_t>> merged(const std::deque<BatchedCall>& calls,
                                             const MayMerge& may_merge);
// The tensors of such calls.
TensorList list_of(const std::deque<BatchedCall>& calls, const std::vector<std::size_t>& places);

// Why the calls depend on each other, as a sentence; "": they do not. Memory that one call writes
// must be no other call's.
std::string dependency_in(const std::deque<BatchedCall>& calls, int rank, int ranks);

}  // namespace dlaunch
