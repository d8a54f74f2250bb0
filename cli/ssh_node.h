// `dlaunch --ssh-node [FOLDER]`, which another dlaunch has started here by ssh
// (launcher/lead/start/ssh_talk.h): reads its order from stdin, checks that all files exist, and
// follows.
#pragma once

#include <string>

namespace dlaunch {

// folder: where our binary was pushed to; "": it was not pushed. It is removed at once: a running
// binary needs no name.
int run_ssh_node(const std::string& folder);

}  // namespace dlaunch
