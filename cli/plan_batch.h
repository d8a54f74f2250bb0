// The facts from PBS, LSF and Grid Engine about the hosts of a batch job: their names, how many
// processes each gets, and what starts the dlaunch of the others; plan_flux.h does the same for
// Flux. Pure.
//
//   dlaunch   in the job's script or its interactive shell: this dlaunch leads, and starts the
//             others by the scheduler's own launcher instead of ssh: pbsdsh of PBS (OpenPBS, PBS
//             Professional, Torque), blaunch of LSF, qrsh -inherit of Grid Engine.
//
// Every option overrides this; --standalone, --nnodes 1 and --hosts override all of it, and
// --ssh-command takes the scheduler's hosts and starts them by ssh.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "cli/options.h"
#include "launcher/plan/hostfile.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

struct BatchAllocation {
  std::string source;            // the variable that names the hosts
  std::vector<HostEntry> hosts;  // with their slots
  Starter starter = Starter::ssh;
};

// The content of a file, as Machine::read_file.
using ReadFile = std::function<Result<std::string>(const std::string& path)>;

// nullopt: not in such a job. Errors: a list of hosts that is missing, unreadable (not_found) or
// malformed (protocol); a dlaunch that pbsdsh has started (usage).
Result<std::optional<BatchAllocation>> read_batch(const Environment& env,
                                                  const ReadFile& read_file);

// Sets the hosts if the options do not say how hosts meet; the source names the variable.
void apply_batch(const BatchAllocation& allocation, Options& options);

// Whether the variable describes such a job, one of Flux, or its place on one host.
bool is_of_batch(std::string_view variable);

}  // namespace dlaunch
