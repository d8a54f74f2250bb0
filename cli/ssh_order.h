// SshOrder: the leader's order to the dlaunches that it starts by ssh on other hosts: where to
// work, with which environment and options. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace dlaunch {

struct SshOrder {
  std::string folder;                                           // to work in
  bool stdout_is_terminal = false, stderr_is_terminal = false;  // the user's
  std::vector<std::string> environment;                         // "K=V"
  std::int32_t min_nodes = 1, max_nodes = 1;
  std::int32_t total = 0;     // workers of all hosts; 0: not known
  bool by_scheduler = false;  // srun and the like get its exit code, and would report each
  // The ssh command with which it may log in to further hosts (--ssh-tree); empty: it may not.
  std::vector<std::string> tree_ssh;
  Options options;  // without the leader's own
};

std::string encode(const SshOrder& order);
// Errc::protocol: something does not fit.
Result<SshOrder> decode_ssh_order(std::string_view bytes);

// The part of an environment for other hosts: without variables about a host, a session or a user
// there: HOME, TMPDIR, SSH_…, its rack and the like; with a scheduler, which sets its own there,
// also without those.
std::vector<std::string> forwarded_environment(const std::vector<std::string>& environment,
                                               bool by_scheduler = false);

// The part of our options for the others.
Options forwarded_options(const Options& options);

}  // namespace dlaunch
