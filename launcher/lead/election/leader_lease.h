// LeaderLease: keeps an elected leader in office, in a thread of its own because its requests may
// take long. It announces the leader's address, renews the lease, writes the journal, and reports
// the loss of the lease. It sends this host's agent lines about the leader through a pipe, as a
// campaign does.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/leader_election.h"

namespace dlaunch {

// Sends a line to CampaignLink. If the agent has gone, the line is lost.
void tell_agent(int to_agent, const std::string& line);

class LeaderLease {
 public:
  // election: already won. to_agent: a descriptor that outlives the process' last lease.
  LeaderLease(std::unique_ptr<LeaderElection> election, int to_agent);
  ~LeaderLease();
  LeaderLease(const LeaderLease&) = delete;
  LeaderLease& operator=(const LeaderLease&) = delete;

  // The previous leader's journal. Call it before take().
  Result<std::string> read_journal();
  // Call it once. endpoint: our own. `lost` is called in the lease's thread, once, and not after
  // leave(); or at once if the system has no thread.
  void take(const std::string& endpoint, std::function<void(const std::string& why)> lost);
  // Writes the journal, then calls `done` in the lease's thread, in the order of the calls and not
  // after leave(). Retries until it succeeds or the lease is lost. Of several waiting journals only
  // the newest is written: it contains the others.
  void write(std::string journal, std::function<void()> done);
  // leave(): the job is over; resigns. rest(): only stops renewing the lease. Both wait for an
  // answer for no more than a second.
  void leave() { stop(true); }
  void rest() { stop(false); }

 private:
  void stop(bool resigns);

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch
