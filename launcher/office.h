// Office: keeps the one that was elected in office, in a thread of its own, the only one of the
// launcher: what it asks may take long to answer. It announces where we are, keeps the lease, and
// says when the office is lost. The agent of this host hears by a pipe who leads, as from a
// candidate.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "rendezvous/leader_election.h"

namespace dlaunch {

class Office {
 public:
  // election: won.
  Office(std::unique_ptr<LeaderElection> election, UniqueFd to_agent);
  ~Office();
  Office(const Office&) = delete;
  Office& operator=(const Office&) = delete;

  // Once. We are at that endpoint; lost is called in the office's thread, once, and
  // not after leave().
  void take(const std::string& endpoint, std::function<void(const std::string& why)> lost);
  // Resigns; does not wait for an answer that does not come within a second.
  void leave();

 private:
  struct Desk;
  std::shared_ptr<Desk> desk_;
};

}  // namespace dlaunch
