// A job as YAML for Kubernetes, in the kinds of --emit. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

// The path of the job's secret in each pod.
inline constexpr const char* kPodSecretFolder = "/etc/dlaunch";

struct KubernetesJob {
  enum class Kind {
    job,       // a headless Service and an Indexed Job
    jobset,    // a JobSet, which makes the Service and the Job
    trainjob,  // Kubeflow Trainer's: a TrainJob and its TrainingRuntime, which make a JobSet
    lws        // a LeaderWorkerSet of one group: Kubernetes restarts ended pods
  };
  std::string name;                  // of all objects
  std::string image;                 // has dlaunch in its PATH, and the program
  std::vector<std::string> command;  // dlaunch with its options, and the program
  int nodes = 1;                     // number of pods, and the minimum
  int min_nodes = 1;
  int gpus = 0;                  // in each pod
  Duration grace{};              // --grace
  bool survives_losses = false;  // dlaunch goes on after losses
  std::string secret;
  Kind kind = Kind::job;
  std::string queue = {};  // of Kueue; "": none
};

// The words of --emit, by kind.
const char* word_of(KubernetesJob::Kind kind);

// A Secret, and the objects of the kind.
std::string kubernetes_yaml(const KubernetesJob& job);

}  // namespace dlaunch
