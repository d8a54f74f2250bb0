// The election by a shared folder: dlaunch-lock-JOB, on which the leader holds an fcntl lock, and
// dlaunch-leader-JOB, "TERM ENDPOINT"; dlaunch-journal-JOB has the journal. All are removed with
// the lock held, so who gets a lock looks whether its file still has its name.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/leader_election.h"

namespace dlaunch {

Result<std::unique_ptr<LeaderElection>> open_file_election(const std::string& folder,
                                                           const std::string& job_id);

}  // namespace dlaunch
