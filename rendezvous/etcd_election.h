// The election by etcd: the dlaunch that creates PREFIX/JOB/leader under a lease leads for as long
// as it keeps the lease. The key's value is "NONCE ENDPOINT"; the revision of its creation is the
// term. PREFIX/JOB/journal holds the journal. Only the leader may write it: each write has the
// condition that the leader's own key still exists.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/etcd_client.h"
#include "rendezvous/leader_election.h"

namespace dlaunch {

Result<std::unique_ptr<LeaderElection>> open_etcd_election(EtcdAccess access,
                                                           const std::string& job_id);

}  // namespace dlaunch
