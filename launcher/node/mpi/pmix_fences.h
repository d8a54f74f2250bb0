// PmixFences: the barriers of a round, in which ranks exchange their data. The library gathers the
// data of this node's ranks; a thread for each barrier then exchanges it between nodes. Any thread
// may call.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "launcher/node/mpi/node_exchange.h"
#include "launcher/node/mpi/pmix_abi.h"
#include "launcher/node/mpi/pmix_job.h"

namespace dlaunch {

class PmixFences {
 public:
  // Lives as long as the process. over: the process is to end; any thread calls it.
  PmixFences(const PmixOrder& order, std::vector<PmixNode> nodes, StoreOptions options,
             std::function<bool()> over);

  // ServerModule::fence.
  pmix::Status come(const pmix::Proc procs[], std::size_t count, char* data, std::size_t size,
                    pmix::Exchanged done, void* caller);

 private:
  struct Fence {
    std::vector<int> ranks;  // empty: all
    int turn;                // barriers of these ranks so far
    std::string text;
    pmix::Exchanged done;
    void* caller;
  };
  void meet(const Fence& fence);
  Result<std::string> exchange(const Fence& fence);
  std::string key_of(const std::vector<int>& ranks, int turn) const;

  const PmixOrder order_;
  const std::vector<PmixNode> nodes_;
  const StoreOptions options_;
  const std::function<bool()> over_;
  std::mutex mutex_;  // of what follows
  std::map<std::vector<int>, int> turns_;
};

}  // namespace dlaunch
