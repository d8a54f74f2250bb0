// A LeaderElection without an election: the user names the leading host by its listen address. What
// remains is the journal, a file on that host, for a dlaunch that is killed and started again.
//
// A missing folder is made, with access for its owner only. A file of another user is ignored.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/leader_election.h"

namespace dlaunch {

// With the user's number appended, this names the folder of journals that have no other place. The
// folder is removed with its last journal.
inline constexpr const char* kJournalFolder = "dlaunch-journals-";

std::unique_ptr<LeaderElection> open_appointed_leader(const std::string& journal);

}  // namespace dlaunch
