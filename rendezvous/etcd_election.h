// The election by etcd: who creates PREFIX/JOB/leader under a lease leads, for as long as the lease
// is kept. The key's value is "NONCE ENDPOINT", its creation's revision the term.
// PREFIX/JOB/journal has the journal, which only it may write: each writing asks for the key that
// it has created.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/etcd_client.h"
#include "rendezvous/leader_election.h"

namespace dlaunch {

Result<std::unique_ptr<LeaderElection>> open_etcd_election(EtcdAccess access,
                                                           const std::string& job_id);

}  // namespace dlaunch
