// --emit: the job as Kubernetes takes it, in YAML. Pure.
//
// kubernetes   a Secret, a headless Service, and an Indexed Job: one pod for each node, whose
// dlaunch
//              finds its number and the leading one itself (plan_kubernetes.h)
// jobset       a Secret and a JobSet, which makes the Service
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

struct KubernetesJob {
  std::string name;                  // of all that is made
  std::string image;                 // has dlaunch in its PATH, and the program
  std::vector<std::string> command;  // dlaunch with its options, and the program
  int nodes = 1;                     // pods
  int gpus = 0;                      // of each
  Duration grace{};                  // --grace
  bool survives_losses = false;      // dlaunch goes on after them
  std::string secret;
  bool jobset = false;
};

// From the options, of which those that are for the pods go into the command, and the plan they
// come to. Errors (usage): what contradicts it, or is no name for Kubernetes.
Result<KubernetesJob> kubernetes_job(const Options& options, const Plan& plan);

std::string kubernetes_yaml(const KubernetesJob& job);

// --image and --gpus are nothing without --emit, and what goes by a pod's GPUs is nothing without
// --gpus.
Result<void> check_emit(const Options& options);

// This machine in a pod's place: with the GPUs that --gpus says, not its own, and no files.
Machine as_pod(Machine machine, const Options& options);

}  // namespace dlaunch
