// Office: keeps the one that was elected in office, in a thread of its own, the only one of the
// launcher: what it asks may take long to answer. It announces where we are, keeps the lease,
// writes the journal, and says when the office is lost. The agent of this host hears by a pipe who
// leads, as from a candidate.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/leader_election.h"

namespace dlaunch {

// A line of what CandidateLink reads. If the agent has gone nobody is there to hear it.
void tell_agent(int to_agent, const std::string& line);

class Office {
 public:
  // election: won. to_agent: a descriptor that outlives the process' last office.
  Office(std::unique_ptr<LeaderElection> election, int to_agent);
  ~Office();
  Office(const Office&) = delete;
  Office& operator=(const Office&) = delete;

  // What the leader before us has left. Before take().
  Result<std::string> read_journal();
  // Once. We are at that endpoint; lost is called in the office's thread, once, and
  // not after leave().
  void take(const std::string& endpoint, std::function<void(const std::string& why)> lost);
  // Writes the journal, and calls `done` in the office's thread, after that of those given before,
  // and not after leave(). Tried until it is done or the office is lost. Of several that wait only
  // the newest is written: it has all that those before it say.
  void write(std::string journal, std::function<void()> done);
  // The job is over: resigns. Without it the office is only not kept any more. Neither waits for an
  // answer that does not come within a second.
  void leave() { stop(true); }
  void rest() { stop(false); }

 private:
  void stop(bool resigns);

  struct Desk;
  std::shared_ptr<Desk> desk_;
};

}  // namespace dlaunch
