// Bootstrap: brings the ranks of one communicator together. They find each other through the store,
// connect to their neighbours, agree on whether to share memory, and learn from rank 0 that all are
// there. No rank's dl_init() returns before, and by then the store holds nothing of the bootstrap
// any more: the same ranks, or the next program of the same job, can repeat it there.
#pragma once

#include <memory>

#include "base/result.h"
#include "rendezvous/store.h"
#include "ring/call/abort_flag.h"
#include "ring/call/parent_end.h"
#include "ring/call/plane.h"
#include "ring/links/contact.h"
#include "ring/links/death_watch.h"
#include "ring/links/job_view.h"
#include "ring/links/mesh.h"
#include "ring/links/rank_facts.h"
#include "ring/shm/host_memory.h"
#include "ring/shm/shm_regions.h"

namespace dlaunch {

struct Bootstrapped {
  Mesh mesh;
  std::vector<int> locals;              // the ranks of this host, ascending
  int cores = 1;                        // that they may use together; all of them agree on it
  int least_cores = 1;                  // the fewest of any host; all ranks agree on it
  bool shared = false;                  // the ranks of every host share memory
  std::vector<RankFacts> facts;         // by rank, of ranks that do not all share memory
  std::unique_ptr<Plane> shm;           // for the locals, if they share and are more than one
  Lives lives;                          // likewise
  Contacts contacts;                    // likewise, of ranks with a listener in `mesh`
  std::shared_ptr<ShmRegions> regions;  // that `shm` reads in place
  std::shared_ptr<HostMemory> memory;   // likewise: where `shm` and groups stage large calls

  // All ranks are on this host, and do not hide it.
  bool all_local() const { return locals.size() == mesh.peers.size(); }
};

// For worlds of more than one rank. Rank 0 of a job started by hand serves the store in this
// process, from the first bootstrap until the process ends. If some rank lacks memory all use the
// sockets, and rank 0 prints one warning; with transport "shm" all get Errc::unsupported. The flag
// must outlive the plane. `parent` as for make_mesh_maker().
Result<Bootstrapped> bootstrap(const JobView& job, AbortFlag& abort,
                               const ParentEnd* parent = nullptr);

// A new connection to the store of the bootstrap, for jobs that have one. In a world of one rank
// that serves the store itself, the first call starts it.
Result<std::unique_ptr<Store>> open_job_store(const JobView& job, TimePoint deadline);

}  // namespace dlaunch
