// In a pod of an Indexed Job (or of a JobSet or a TrainJob, which make one) or of a
// LeaderWorkerSet the environment and the pod's own name give the number of this node, and the
// leader. Pure.
// JOB_COMPLETION_INDEX is the node's number. A pod of a headless Service is called
// NAME-INDEX.SERVICE.NAMESPACE.svc.…: index 0 of the same leads. In a group of a LeaderWorkerSet
// LWS_WORKER_INDEX is the number, and LWS_LEADER_ADDRESS the name of pod 0. Used if --nnodes wants
// more than one node, and no other option says how they meet.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/options.h"
#include "cli/plan_slurm.h"

namespace dlaunch {

inline constexpr std::uint16_t kKubernetesPort = 29400;

// Sets the known facts where the options say nothing. full_name: of this host, with its domain.
// False: not in such a pod, or not wanted. Errors (usage): a pod whose name cannot be resolved.
Result<bool> apply_kubernetes(const Environment& env, const std::string& hostname,
                              const std::string& full_name, Options& options);

}  // namespace dlaunch
