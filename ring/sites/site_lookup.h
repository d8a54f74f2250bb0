// SiteLookup: finds the addresses of other sites. A name server can take long, so each name that is
// no numeric address is resolved in a thread of its own.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/address.h"
#include "base/endpoint.h"
#include "base/result.h"

namespace dlaunch {

class SiteLookup {
 public:
  using Addresses = Result<std::vector<SocketAddress>>;

  // wake: an eventfd that each answer makes readable.
  explicit SiteLookup(int wake);
  // Begins to look up the address of a site. No effect while it does so already.
  void ask(int site, const Endpoint& endpoint);
  // The answer, once.
  std::optional<Addresses> take(int site);

 private:
  struct Answers;  // which the threads share
  std::set<int> asked_;
  const std::shared_ptr<Answers> answers_;
};

}  // namespace dlaunch
