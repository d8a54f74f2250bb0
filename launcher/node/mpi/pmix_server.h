// PmixServer: MPI programs that speak PMIx, such as Open MPI's, find the other ranks through it.
// Each round has a port of its own, and nothing more until a program connects; then a process
// serves it (pmix_program.h). One thread, the loop's.
#pragma once

#include <sys/types.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>

#include <asio/io_context.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "base/secret.h"
#include "launcher/node/mpi/pmix_job.h"
#include "launcher/node/workers/worker_env.h"

namespace dlaunch {

class PmixServer {
 public:
  // common: the part of an order that is the same for all rounds; each round's folder is made in
  // its folder. secret: the job's. helpers: has the processes while they run.
  PmixServer(asio::io_context& loop, std::set<pid_t>& helpers, Secret secret, PmixOrder common);
  // Waits a moment for the processes: they remove what programs left behind.
  ~PmixServer();
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;

  // A worker has called MPI_Abort() and waits to be killed.
  using Aborted = std::function<void(int worker, int exit_code)>;
  void on_abort(Aborted aborted) { aborted_ = std::move(aborted); }
  // A rank has called MPI_Comm_spawn(), in vain.
  using SpawnAsked = std::function<void(int rank)>;
  void on_spawn(SpawnAsked asked) { spawn_asked_ = std::move(asked); }
  // The environment variables for the worker at this place; none if this host has no libpmix.
  Result<Variables> invite(const WorkerPlace& place);
  // The rank has ended with exit code 0: others may wait for it in MPI_Init().
  void ended_well(int rank);
  // As MpiServers::forget_rounds().
  void forget_rounds();

 private:
  struct Served;
  using ServedPtr = std::shared_ptr<Served>;
  Result<void> begin(const WorkerPlace& place);
  void await_first(const ServedPtr& round);
  void start_if_complete(const ServedPtr& round);
  Result<void> start(const ServedPtr& round);
  void read(const ServedPtr& round);
  void take_line(const ServedPtr& round, const std::string& line);
  void look_for_missing(const ServedPtr& round, TimePoint at);
  void watch(const ServedPtr& round);
  void end(Served& round);

  asio::io_context& loop_;
  std::set<pid_t>& helpers_;
  const Secret secret_;
  const PmixOrder common_;
  Aborted aborted_;
  SpawnAsked spawn_asked_;
  bool looked_ = false;
  std::optional<PmixVersion> version_;  // of this host's library
  std::list<ServedPtr> rounds_;  // the last is current; processes of earlier ones may still end
  int begun_ = 0;                // rounds
};

}  // namespace dlaunch
