// --emit: the job as Kubernetes takes it, in YAML. Pure.
//
// A Secret, and one of the kinds of kubernetes_yaml.h, with one pod for each node. Its dlaunch
// finds its number and the leading one itself (plan_kubernetes.h).
#pragma once

#include "base/result.h"
#include "cli/kubernetes_yaml.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

// From the options, of which those that are for the pods go into the command, and the plan they
// come to. Errors (usage): what contradicts it, or is no name for Kubernetes.
Result<KubernetesJob> kubernetes_job(const Options& options, const Plan& plan);

// --image, --gpus and --queue are nothing without --emit, and what goes by a pod's GPUs is nothing
// without
// --gpus.
Result<void> check_emit(const Options& options);

// This machine in a pod's place: with the GPUs that --gpus says, not its own, and no files.
Machine as_pod(Machine machine, const Options& options);

}  // namespace dlaunch
