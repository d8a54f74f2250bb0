// The facts from Slurm's environment about the place of this dlaunch in a job: the nodes, the
// number of this one, and facts on which all agree without messages. Pure.
//
//   srun dlaunch   a step: one dlaunch on each node, started by Slurm. They agree on the step's
//                  first node as the leader, and on a port made of job and step.
//   dlaunch        in a batch script or the shell of salloc: this dlaunch leads, and starts the
//                  others by srun, a step each, as it would by ssh.
//
// Every option overrides this; --standalone, --nnodes 1 and --hosts override all of it.
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

// Ports that a step derives: below the range from which Linux chooses its own.
inline constexpr std::uint16_t kSlurmPorts = 20480, kSlurmPortCount = 12281;

struct SlurmAllocation {
  bool step = false;               // else an allocation without steps so far
  std::vector<std::string> nodes;  // by node number
  std::vector<int> tasks;          // of each: Slurm's tasks there
  std::vector<int> cpus;           // of each node of an allocation
  std::string here;                // this node's name; "": not in the allocation
  int number = 0;                  // this node's, of a step
  std::string job;                 // its number
  std::string name;        // of the job, the same on all nodes: "slurm-12.0", "slurm-12.0-r1"
  std::uint16_t port = 0;  // of a step
  int requeued = 0;        // how often it was requeued
  int cpus_here = 0;       // CPUs from Slurm on this node; 0: unknown
};

// nullopt: not under Slurm. Errors (usage): several dlaunch on a node, or contradicting variables.
Result<std::optional<SlurmAllocation>> read_slurm(const Environment& env);

// Whether the options leave the choice of hosts to a scheduler.
bool left_to_scheduler(const Options& options);

// Sets Slurm's facts where the options say nothing; the source names the variable.
void apply_slurm(const SlurmAllocation& allocation, Options& options);

// "2(x3),1" -> 2 2 2 1
Result<std::vector<int>> parse_slurm_counts(std::string_view text);

// The rest of the job's time as squeue prints it with %L: "1-02:00:00", "5:00"; nullopt: no limit.
std::optional<Duration> parse_slurm_time_left(std::string_view text);

}  // namespace dlaunch
