// What `dlaunch --ssh-node [FOLDER]` does, the dlaunch that another one has started here by ssh
// (launcher/ssh/ssh_talk.h): takes its order from stdin, checks that all is there, and follows.
#pragma once

#include <string>

namespace dlaunch {

// folder: where our binary was pushed to, "": nowhere. It is removed at once; what runs needs no
// name.
int run_ssh_node(const std::string& folder);

}  // namespace dlaunch
