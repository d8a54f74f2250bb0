// LeaderElection where there is nothing to elect: the user has said which host leads, by the
// address that it listens at. What is left is the journal, a file of that host, for the case that
// its dlaunch is killed and started again.
//
// The file's folder is made if it is missing, for its owner alone. A file that belongs to another
// user is not believed.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/leader_election.h"

namespace dlaunch {

// With the user's number, the folder of journals that have no other place; it is removed with the
// last of them.
inline constexpr const char* kJournalFolder = "dlaunch-journals-";

std::unique_ptr<LeaderElection> open_appointed_leader(const std::string& journal);

}  // namespace dlaunch
