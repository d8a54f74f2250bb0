// Gives newcomers replicated GPU memory from GPU to GPU.
#pragma once

#include <optional>
#include <span>

#include "elastic/state/copies.h"
#include "elastic/state/pull.h"
#include "elastic/state/sync.h"

namespace dlaunch {

// Collective; the receivers have made room in their copies. Works if some rank lacks replicated
// memory and part of that memory is on GPUs, in the same buffers on all ranks, and NCCL brings
// those together. A holder broadcasts its registered memory to all, and each receiver makes its
// copy from its own memory. A failure touches no whole copy. None: another way must be used.
Result<std::optional<Filled>> give_by_gpus(const Contribution& contribution,
                                           std::span<const Pull> pulls, Copy& copy);

}  // namespace dlaunch
