// ShmPlane: collectives of ranks on one host through shared memory (memfds: no names, no /dev/shm
// quota, nothing left behind). One small read-write control segment for flags, and what two ranks
// pass to and fro; and one data segment per rank that only its owner can write; peers map it
// read-only. Bootstrap passes the descriptors over AF_UNIX links; tests hand them to threads.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/call/abort_flag.h"
#include "ring/call/plane.h"
#include "ring/links/death_watch.h"
#include "ring/plan/plan_rules.h"

namespace dlaunch {

class ShmRegions;
class HostMemory;

struct ShmOptions {
  // Cores the ranks of this host may use together; fewer than ranks: no spinning (see wait policy).
  int usable_cores = 1;
  // What errors call the ranks: those of the communicator, where this plane has some of them only.
  // Empty: as they are numbered here.
  std::vector<int> names = {};
  // Memory that the ranks read where it lies; null: none.
  std::shared_ptr<const ShmRegions> regions = nullptr;
  PlanRules plan_rules = {};  // alike on all ranks
  // Where large calls are staged, and what the ranks are there; null: in the segments of this plane
  // alone.
  std::shared_ptr<HostMemory> host_memory = nullptr;
  std::vector<int> host_ranks = {};
};

// A new control segment for n ranks, zeroed; one rank makes it.
Result<UniqueFd> make_shm_control(int ranks);
// The ranks' locks there, mapped by themselves.
Result<Lives> map_lives(const UniqueFd& control, int ranks);
// A new data segment; each rank makes its own. Its writable mapping is made before the descriptor
// is sealed, so that nobody the descriptor is passed to can write.
struct ShmData {
  UniqueFd fd;                     // for the peers
  std::shared_ptr<void> writable;  // the owner's mapping; the plane keeps it
  std::size_t bytes = 0;
};
Result<ShmData> make_shm_data(int ranks);

}  // namespace dlaunch
