// NodeExchange: before the ranks of an MPI program come out of a barrier, each node tells the
// others what its own ranks have said, one text each, by the job's store. Blocks; one thread at a
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
    std::string key;  // of this exchange, alike on all nodes: "pmi/r1/2/"
    int node;         // who we are
    std::vector<int> others;
    std::string text;  // ours, of any length
  };
  // The others' texts in their order. over: asked several times a second, whether it waits for
  // this node in vain by now (Errc::aborted).
  Result<std::vector<std::string>> run(const Request& request,
                                       const std::function<bool(int node)>& over);
  // Takes back what we told in an exchange that all have been through.
  void forget(const std::string& key, int node);
  // Takes back all that anybody told in exchanges whose keys begin so.
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
