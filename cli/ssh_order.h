// SshOrder: what the dlaunch that leads a job tells those of other hosts when it starts them by
// ssh: where to work, with which environment and options. Pure.
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
  bool by_scheduler = false;  // its exit code is for srun and the like, which would tell of each
  Options options;            // but for those that are the leader's
};

std::string encode(const SshOrder& order);
// Errc::protocol for whatever does not fit.
Result<SshOrder> decode_ssh_order(std::string_view bytes);

// What of an environment goes to other hosts: all but what describes a host, a session or a user
// there: HOME, TMPDIR, SSH_… and the like; by a scheduler, which does the same, also its own.
std::vector<std::string> forwarded_environment(const std::vector<std::string>& environment,
                                               bool by_scheduler = false);

// What of our options concerns the others.
Options forwarded_options(const Options& options);

}  // namespace dlaunch
