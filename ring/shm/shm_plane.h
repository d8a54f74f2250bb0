// ShmPlane: collectives of ranks on one host through shared memory (memfds: no names, no /dev/shm
// quota, nothing left behind). One small read-write control segment holds flags, and data that two
// ranks pass to and fro. Each rank has a part of the data segment that only it can write; peers map
// it read-only. Bootstrap passes the two descriptors over AF_UNIX links; tests hand them to
// threads.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/call/abort_flag.h"
#include "ring/call/plane.h"
#include "ring/links/contact.h"
#include "ring/links/death_watch.h"
#include "ring/plan/plan_rules.h"

namespace dlaunch {

class ShmRegions;
class HostMemory;

struct ShmOptions {
  // Cores that the ranks of this host share; fewer than ranks: no spinning (see wait policy).
  int usable_cores = 1;
  // The ranks' names in errors: their ranks in the communicator, if this plane has only some of
  // them. Empty: as they are numbered here.
  std::vector<int> names = {};
  // Memory that the ranks read in place; null: none.
  std::shared_ptr<const ShmRegions> regions = nullptr;
  PlanRules plan_rules = {};  // alike on all ranks
  // Staging memory for large calls, and the ranks' numbers there; null: only the segments of this
  // plane.
  std::shared_ptr<HostMemory> host_memory = nullptr;
  std::vector<int> host_ranks = {};
};

// A new control segment for `ranks` ranks, zeroed; one rank makes it.
Result<UniqueFd> make_shm_control(int ranks);
// What ranks find there of each other beside data, in a mapping of its own.
struct Neighbourhood {
  Lives lives;
  Contacts contacts;
};
Result<Neighbourhood> map_neighbourhood(const UniqueFd& control, int ranks);
// A new data segment without memory; one rank makes it.
Result<UniqueFd> make_shm_data(int ranks);
// Once all ranks have mapped it: from here on no process can map it writable, so a confused peer
// cannot damage another rank's data.
void seal_shm_data(const UniqueFd& data);

}  // namespace dlaunch
