// TF_CONFIG: gives a worker's TensorFlow the addresses of the job's other workers. Pure.
// https://www.tensorflow.org/guide/distributed_training describes it.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace dlaunch {

// peers: "host:port" of each rank. Without roles each rank is a "worker". An evaluator has a task
// of its own, but is in no cluster, as TensorFlow requires. "": the rank has none, because it is a
// spare or its peers are unknown.
std::string tf_config(const std::vector<JobRole>& roles, int rank,
                      const std::vector<std::string>& peers);

}  // namespace dlaunch
