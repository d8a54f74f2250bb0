// LeaderElection: finds which host leads a job by way of something that all of them reach, or makes
// us the one. It says who and where; everything else the hosts settle with the leader, over TCP.
//
// file_election.h: a folder. The leader holds an fcntl lock, which ends with its process, and of a
// host that
//   is gone with the file server's own lease; a file beside it, replaced in one piece, says where
//   it is. They are removed when a leader resigns.
// etcd_election.h: the leader has created a key under a lease of kTtl, which it keeps.
// appointed_leader.h: the user has said who leads; only the journal is left.
//
// Every leader has a term, and a later one's is larger. Blocking calls, for one thread; what stands
// in the file or the key is not believed but tried: whoever answers there has to prove the secret.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

struct Leader {
  std::uint64_t term = 0;
  std::string endpoint;  // host:port; empty: not yet known
  bool operator==(const Leader&) const = default;
};

class LeaderElection {
 public:
  static constexpr Duration kTtl = std::chrono::seconds(5);  // of a lease in etcd

  virtual ~LeaderElection() = default;

  // Who leads now; nullopt: nobody.
  virtual Result<std::optional<Leader>> find(TimePoint deadline) = 0;
  // Returns when somebody else may lead than find() said, at the deadline, and now and then without
  // a reason.
  virtual void wait_change(TimePoint deadline) = 0;
  // True: we lead from now on, until resign(), or our process ends, or we do not keep() in time.
  virtual Result<bool> campaign(TimePoint deadline) = 0;

  // -- Of the leader
  // Errc::aborted: we do not lead any more.
  virtual Result<void> announce(const std::string& endpoint, TimePoint deadline) = 0;
  // To be called every kTtl / 4. Errc::aborted as above; other errors may pass.
  virtual Result<void> keep(TimePoint deadline) = 0;
  // What the next leader is to know; it stays when the leader's process ends, and goes when it
  // resigns. On disk before this returns, and nothing of a leader that is none any more.
  // Errc::aborted as above; with other errors it may be written or not.
  virtual Result<void> write_journal(const std::string& journal, TimePoint deadline) = 0;
  // Of the leader before; empty: nothing was left.
  virtual Result<std::string> read_journal(TimePoint deadline) = 0;
  virtual void resign(TimePoint deadline) = 0;
};

}  // namespace dlaunch
