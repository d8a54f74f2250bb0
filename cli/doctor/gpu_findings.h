// What `dlaunch doctor`, and the test of a host that joins a job, conclude of its GPUs. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/findings.h"
#include "cli/doctor/gpu_facts.h"

namespace dlaunch {

// Of one host. Those that are bad mean that a job there fails, computes wrong, or, where speed was
// measured, is slow as a whole.
std::vector<Finding> gpu_findings(const std::string& host, const AllGpuFacts& facts);

}  // namespace dlaunch
