// LeaderLease: keeps an elected leader in its place, in a thread of its own, because what that asks
// may take long to answer. It announces the leader's address, renews the lease, writes the journal,
// and reports the loss of the lease. It tells the agent of this host by a pipe who leads, as a
// campaign does.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/leader_election.h"

namespace dlaunch {

// A line of what CampaignLink reads. If the agent has gone nobody is there to hear it.
void tell_agent(int to_agent, const std::string& line);

class LeaderLease {
 public:
  // election: won. to_agent: a descriptor that outlives the process' last lease.
  LeaderLease(std::unique_ptr<LeaderElection> election, int to_agent);
  ~LeaderLease();
  LeaderLease(const LeaderLease&) = delete;
  LeaderLease& operator=(const LeaderLease&) = delete;

  // What the leader before us has left. Before take().
  Result<std::string> read_journal();
  // Once. We are at that endpoint; lost is called in the lease's thread, once, and
  // not after leave().
  void take(const std::string& endpoint, std::function<void(const std::string& why)> lost);
  // Writes the journal, and calls `done` in the lease's thread, after that of those given before,
  // and not after leave(). Tried until it is done or the lease is lost. Of several that wait only
  // the newest is written: it has all that those before it say.
  void write(std::string journal, std::function<void()> done);
  // The job is over: resigns. Without it the lease is only not kept any more. Neither waits for an
  // answer that does not come within a second.
  void leave() { stop(true); }
  void rest() { stop(false); }

 private:
  void stop(bool resigns);

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch
