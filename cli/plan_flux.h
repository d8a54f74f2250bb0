// The facts from Flux about the place of this dlaunch. Pure, except that it asks the program flux
// for the hosts: no variable has them.
//
//   flux run -N4 -n4 dlaunch   one dlaunch on each host, started by Flux. They agree on the first
//                              host of the job as the leader, and on a port made of its ID.
//   dlaunch                    in the script of flux batch, or the shell of flux alloc: it leads,
//                              and starts the others by flux exec (plan_batch.h).
//
// Every option overrides this, as for the other schedulers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/result.h"
#include "cli/options.h"

namespace dlaunch {

struct FluxAllocation {
  bool step = false;               // of flux run; else an instance without tasks so far
  std::vector<std::string> hosts;  // by rank of the task, or of the broker
  int number = 0;                  // this task's
  std::string name;                // of a step, the same on all hosts: "flux-f2WpHZ5J"
  std::uint16_t port = 0;          // of a step
};

// The output of the program flux for these arguments.
using AskFlux = std::function<Result<std::string>(const std::vector<std::string>& words)>;

// nullopt: not under Flux. Errors (usage): several dlaunch on a host, contradicting variables, or
// flux does not list the hosts.
Result<std::optional<FluxAllocation>> read_flux(const Environment& env, const AskFlux& ask);

// For a step: sets Flux's facts where the options say nothing; the source names the variable.
void apply_flux(const FluxAllocation& allocation, Options& options);

}  // namespace dlaunch
