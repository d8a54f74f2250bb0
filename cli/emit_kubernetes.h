// --emit: the job as YAML for Kubernetes. Pure.
// A Secret, and one of the kinds of kubernetes_yaml.h, with one pod for each node. The dlaunch in
// a pod finds its number and the leader itself (plan_kubernetes.h).
#pragma once

#include "base/result.h"
#include "cli/kubernetes_yaml.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

// From the options (those for the pods go into the command) and the plan made from them. Errors
// (usage): options that contradict it, or a name that is invalid for Kubernetes.
Result<KubernetesJob> kubernetes_job(const Options& options, const Plan& plan);

// Refuses --image, --gpus and --queue without --emit, and options that depend on a pod's GPUs
// without --gpus.
Result<void> check_emit(const Options& options);

// This machine in the role of a pod: with the GPUs of --gpus, not its own, and no files.
Machine as_pod(Machine machine, const Options& options);

}  // namespace dlaunch
