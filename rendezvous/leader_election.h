// LeaderElection: finds the leading host of a job through a place that all hosts reach, or makes us
// the leader. It only says who leads and where; the hosts settle everything else with the leader,
// over TCP.
//
// file_election.h: a folder. The leader holds an fcntl lock. The lock ends with the leader's
// process or, if its host is gone, with the file server's own lease. A file beside it, replaced
// atomically, has the leader's address. A leader that resigns removes both.
// etcd_election.h: the leader has created a key under a lease of kTtl, which it keeps.
// appointed_leader.h: the user appoints the leader; only the journal remains.
//
// Every leader has a term, and a later one's is larger. Blocking calls, for one thread. Hosts do
// not trust the address in the file or the key: the process that answers there has to prove the
// secret.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace dlaunch {

// Whether a --rdzv is such a place, not the leader's address.
constexpr bool is_election_url(std::string_view rdzv) {
  return rdzv.starts_with("file://") || rdzv.starts_with("etcd://") || rdzv.starts_with("etcds://");
}

struct Leader {
  std::uint64_t term = 0;
  std::string endpoint;  // host:port; empty: not yet known
  bool operator==(const Leader&) const = default;
};

class LeaderElection {
 public:
  static constexpr Duration kTtl = std::chrono::seconds(5);  // of a lease in etcd

  virtual ~LeaderElection() = default;

  // The present leader; nullopt: none.
  virtual Result<std::optional<Leader>> find(TimePoint deadline) = 0;
  // Returns when the leader may have changed since find(), at the deadline, and now and then
  // without a reason.
  virtual void wait_change(TimePoint deadline) = 0;
  // True: we lead until resign(), until our process ends, or until a keep() is late.
  virtual Result<bool> campaign(TimePoint deadline) = 0;

  // -- Of the leader
  // Errc::aborted: we no longer lead.
  virtual Result<void> announce(const std::string& endpoint, TimePoint deadline) = 0;
  // Call it every kTtl / 4. Errc::aborted as above; other errors may pass.
  virtual Result<void> keep(TimePoint deadline) = 0;
  // The facts that the next leader needs. The journal survives the leader's process; resigning
  // removes it. It is on disk before this returns; a former leader cannot write it. Errc::aborted
  // as above; after other errors it may be written or not.
  virtual Result<void> write_journal(const std::string& journal, TimePoint deadline) = 0;
  // The previous leader's journal; empty: none.
  virtual Result<std::string> read_journal(TimePoint deadline) = 0;
  virtual void resign(TimePoint deadline) = 0;
};

}  // namespace dlaunch
