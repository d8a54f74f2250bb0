// The conclusions of `dlaunch doctor`, and of the test of a joining host, about GPUs. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/findings.h"
#include "cli/doctor/gpu_facts.h"

namespace dlaunch {

// For one host. A bad finding means that a job there fails, computes wrong results, or, if speed
// was measured, is slow as a whole.
std::vector<Finding> gpu_findings(const std::string& host, const AllGpuFacts& facts);

}  // namespace dlaunch
