// Replicated memory on GPUs, given to newcomers from GPU to GPU.
#pragma once

#include <optional>
#include <span>

#include "elastic/state/copies.h"
#include "elastic/state/pull.h"
#include "elastic/state/sync.h"

namespace dlaunch {

// Collective; the receivers have made room in their copies. Where somebody lacks what is
// replicated, some of it is on GPUs, of the same buffers on all ranks, and NCCL brings those
// together, a holder's registered memory becomes everybody's, and each receiver's copy is made of
// its own. If it fails, no copy that was whole has been touched. None: it goes another way.
Result<std::optional<Filled>> give_by_gpus(const Store& store, std::span<const Pull> pulls,
                                           Copy& copy);

}  // namespace dlaunch
