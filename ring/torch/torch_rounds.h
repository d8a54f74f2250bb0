// Functions for an elastic process beside the calls of c10d.
#pragma once

#include <mutex>
#include <vector>

#include "ring/torch/torch_group_base.h"

namespace dlring_torch {

// Copies rank 0's bytes to all ranks.
inline void share_from_first(Comm& comm, const Tensors& tensors) {
  std::vector<void*> data;
  std::vector<std::size_t> counts;
  for (const auto& tensor : tensors) {
    data.push_back(tensor.data_ptr());
    counts.push_back(tensor.nbytes());
  }
  const std::scoped_lock lock(comm.collectives, comm.starting);
  if (!tensors.empty()) follow_stream(comm, tensors[0]);
  comm.check(dl_broadcast_list(comm.get(), data.size(), data.data(), counts.data(), DL_UINT8, 0));
}

}  // namespace dlring_torch
