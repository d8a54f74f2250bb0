// The etcd:// Store: keys under PREFIX/JOB/store/ in etcd. They stay after the job has ended; use a
// new job id for each job, or delete_prefix("").
//
// If the connection ends while add() waits for its answer, add() fails (Errc::peer_lost), because
// the outcome is unknown. All other calls are tried again, also while etcd restarts. etcd's own
// limit of 1.5 MiB a request leaves room for the largest key and value.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/etcd_client.h"
#include "rendezvous/store.h"

namespace dlaunch {

Result<std::unique_ptr<Store>> open_etcd_store(EtcdAccess access, const std::string& job_id);

}  // namespace dlaunch
