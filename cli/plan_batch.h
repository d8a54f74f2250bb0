// What PBS, LSF and Grid Engine say about the hosts of a batch job: which there are, how many
// processes each is to have, and what starts the dlaunch of the others; plan_flux.h says the same
// of Flux. Pure.
//
//   dlaunch   in the job's script or its interactive shell: this dlaunch leads, and starts the
//             others by the scheduler's own launcher, as it would by ssh: pbsdsh of PBS
//             (OpenPBS, PBS Professional, Torque), blaunch of LSF, qrsh -inherit of Grid Engine.
//
// Whatever an option says wins; --standalone, --nnodes 1 and --hosts leave nothing to them, and
// --ssh-command leaves the hosts to them and starts them by ssh.
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

struct BatchPlace {
  std::string source;            // the variable that names the hosts
  std::vector<HostEntry> hosts;  // with their slots
  Starter starter = Starter::ssh;
};

// The content of a file, as Machine::read_file.
using ReadFile = std::function<Result<std::string>(const std::string& path)>;

// nullopt: in no such job. Errors: a list of hosts that is missing, or cannot be read (not_found)
// or understood (protocol); a dlaunch that pbsdsh has started (usage).
Result<std::optional<BatchPlace>> read_batch(const Environment& env, const ReadFile& read_file);

// Puts the hosts where the options say nothing of how hosts meet; the source names the variable.
void apply_batch(const BatchPlace& place, Options& options);

// Whether a variable tells of such a job, or of one of Flux, or of its place on one host.
bool is_of_batch(std::string_view variable);

}  // namespace dlaunch
