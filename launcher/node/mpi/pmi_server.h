// PmiServer: MPI programs of this node find the other ranks through it; pmi_core.h has the
// protocol. Each worker inherits one end of a connection, named by PMI_FD. A thread, started at the
// first message, answers; it exchanges values with other nodes through the job's store, and may
// wait for it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/node/mpi/node_exchange.h"
#include "launcher/node/mpi/pmi_core.h"
#include "launcher/node/workers/worker_env.h"
#include "rendezvous/store.h"

namespace dlaunch {

class PmiServer {
 public:
  // options: of the job's store; its address comes with the workers' places.
  PmiServer(asio::io_context& loop, StoreOptions options);
  ~PmiServer();
  PmiServer(const PmiServer&) = delete;
  PmiServer& operator=(const PmiServer&) = delete;

  // A worker has called MPI_Abort() and waits to be killed; on the loop.
  using Aborted = std::function<void(int worker, int exit_code)>;
  void on_abort(Aborted aborted) { aborted_ = std::move(aborted); }
  // A rank has called MPI_Comm_spawn(), in vain; on the loop.
  using SpawnAsked = std::function<void(int rank)>;
  void on_spawn(SpawnAsked asked) { spawn_asked_ = std::move(asked); }
  // The descriptor that the worker at this place is to inherit. Call it in the loop's thread.
  Result<UniqueFd> connect(const WorkerPlace& place);
  // As MpiServers::forget_rounds().
  void forget_rounds();

 private:
  struct Session {
    UniqueFd fd;
    std::string unread;  // a line's beginning
    WorkerPlace place;
  };
  using Others = Result<std::vector<std::string>>;

  Result<void> open();
  void await_first();
  void serve();
  void hear(int client);
  void close(int client);
  Others exchange(const PmiCore::Exchange& what, const WorkerPlace& place, int run);

  asio::io_context& loop_;
  UniqueFd poll_, stop_;
  asio::posix::stream_descriptor first_;  // readable at the first message
  Aborted aborted_;
  SpawnAsked spawn_asked_;
  std::atomic<int> newest_round_{0};
  std::atomic<int> run_{0};  // whose rounds these are
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // of what follows
  PmiCore core_;
  std::map<int, Session> sessions_;  // by our end
  NodeExchange exchange_;            // the thread's own
  std::thread thread_;
};

}  // namespace dlaunch
