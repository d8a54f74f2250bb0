// The election by a shared folder. The leader holds an fcntl lock on dlaunch-lock-JOB;
// dlaunch-leader-JOB is "TERM ENDPOINT"; dlaunch-journal-JOB holds the journal. The leader removes
// all three with the lock held, so a process that gets a lock must check that its file still has
// its name. A file server may give a leader's lock to another host before the leader knows: the
// higher term in the note then ends the first one's right to lead.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/leader_election.h"

namespace dlaunch {

Result<std::unique_ptr<LeaderElection>> open_file_election(const std::string& folder,
                                                           const std::string& job_id);

}  // namespace dlaunch
