// MpiServers: all services by which MPI programs of this node find each other, for every library.
#pragma once

#include <set>

#include <asio/io_context.hpp>

#include "base/unique_fd.h"
#include "launcher/node/mpi/pmi_server.h"
#include "launcher/node/mpi/pmix_server.h"

namespace dlaunch {

class MpiServers {
 public:
  MpiServers(asio::io_context& loop, std::set<pid_t>& helpers, const StoreOptions& options,
             PmixOrder common);

  // A worker has called MPI_Abort() and waits to be killed; on the loop.
  void on_abort(const PmiServer::Aborted& aborted);
  // Completes the place of a worker that is about to be started. The worker is to inherit the
  // returned descriptor, which must stay open until then. Does nothing if MPI programs would wait
  // in vain for ranks that are not started with them: each such program is on its own.
  UniqueFd invite(WorkerPlace& place);
  // The rank has ended with exit code 0.
  void ended_well(int rank) { pmix_.ended_well(rank); }
  // The numbers of rounds begin again, and no worker runs.
  void forget_rounds();

 private:
  void tell_of_spawn(int rank);

  PmiServer pmi_;
  PmixServer pmix_;
  bool told_of_spawn_ = false;
};

}  // namespace dlaunch
