// NodeExchange: an all-gather of one text per node through the job's store, with the messages of
// the node's ranks, before the ranks of an MPI program leave a barrier. Blocks; one thread at a
// time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "rendezvous/store.h"

namespace dlaunch {

class NodeExchange {
 public:
  explicit NodeExchange(StoreOptions options) : options_(std::move(options)) {}

  struct Request {
    std::string store_url;
    std::string key;  // of this exchange, the same on all nodes: "pmi/r1/2/"
    int node;         // our own
    std::vector<int> others = {};
    std::string text;  // ours, of any length
  };
  // Returns the others' texts in their order. over: polled several times a second; true: waiting
  // for this node is in vain (Errc::aborted).
  Result<std::vector<std::string>> run(const Request& request,
                                       const std::function<bool(int node)>& over);
  // Removes our text of an exchange that all nodes have completed.
  void forget(const std::string& key, int node);
  // Removes all texts of exchanges whose keys begin so.
  void forget(const std::string& prefix);

 private:
  using Over = std::function<bool()>;
  Result<void> reach_store(const std::string& url);
  Result<void> tell(const std::string& prefix, const std::string& text);
  Result<std::string> hear(const std::string& prefix, const Over& over);
  Result<std::string> await(const std::string& key, const Over& over);

  const StoreOptions options_;
  std::unique_ptr<Store> store_;
  std::string store_url_;
};

}  // namespace dlaunch
