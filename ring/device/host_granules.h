// Device memory through the host: cuts a call into granules. Each granule is copied from the
// device, is a call of its own on the host's planes, and is copied back, while its neighbours are
// on their way. Pure: only which bytes go where.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ring/call/plane.h"

namespace dlaunch {

struct HostPiece {
  const void* in_device = nullptr;  // in the user's input; or
  void* out_device = nullptr;       // in the user's output
  std::size_t staged = 0;           // first byte in the granule's memory on the host
  std::size_t bytes = 0;
};

struct HostGranule {
  std::vector<HostPiece> in, out;
  std::size_t count = 0;            // of the call on the host; with counts: of this rank
  std::vector<std::size_t> counts;  // of the call; empty: none
  std::optional<Splits> splits;     // likewise
};

// How a call is cut: the same on all ranks.
struct HostCut {
  std::size_t granules = 0;
  std::size_t elements = 0;                 // of each rank's part, in one granule, at most
  std::size_t in_bytes = 0, out_bytes = 0;  // memory on the host for one granule, at most
};
HostCut cut_for_host(const Call& call, int ranks, std::size_t granule_bytes);
HostGranule host_granule(const Call& call, int rank, int ranks, const HostCut& cut,
                         std::size_t number);

}  // namespace dlaunch
