// What Slurm's environment says about the place of this dlaunch in a job: which nodes there are,
// which one this is, and what the others know without being told. Pure.
//
//   srun dlaunch   a step: one dlaunch on each node, started by Slurm. They agree on the first node
//                  of the step as the one that leads, and on a port made of job and step.
//   dlaunch        in a batch script or the shell of salloc: this dlaunch leads, and starts the
//                  others by srun, a step each, as it would by ssh.
//
// Whatever an option says wins; --standalone, --nnodes 1 and --hosts leave nothing to Slurm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/result.h"
#include "cli/options.h"

namespace dlaunch {

// Ports that a step derives: those below where Linux chooses its own.
inline constexpr std::uint16_t kSlurmPorts = 20480, kSlurmPortCount = 12281;

struct SlurmPlace {
  bool step = false;               // else an allocation, and nothing started on it yet
  std::vector<std::string> nodes;  // by node number
  std::vector<int> tasks;          // of each: Slurm's tasks there
  std::vector<int> cpus;           // of each node of an allocation
  std::string here;                // this node's name; "": not one of the allocation's
  int number = 0;                  // this node's, of a step
  std::string job;                 // its number
  std::string name;        // of the job, the same on all nodes: "slurm-12.0", "slurm-12.0-r1"
  std::uint16_t port = 0;  // of a step
  int requeued = 0;        // put into the queue again, so often
  int cpus_here = 0;       // that Slurm gave on this node; 0: it does not say
};

// nullopt: not under Slurm. Errors (usage): several dlaunch on a node, variables that contradict
// each other.
Result<std::optional<SlurmPlace>> read_slurm(const Environment& env);

// Whether the options leave the choice of hosts to a scheduler.
bool left_to_scheduler(const Options& options);

// Puts what Slurm says where the options say nothing; the source names the variable.
void apply_slurm(const SlurmPlace& place, Options& options);

// "2(x3),1" -> 2 2 2 1
Result<std::vector<int>> parse_slurm_counts(std::string_view text);

// What is left of the job's time as squeue prints it with %L: "1-02:00:00", "5:00"; nullopt where
// there is no limit.
std::optional<Duration> parse_slurm_time_left(std::string_view text);

}  // namespace dlaunch
