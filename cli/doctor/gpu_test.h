// A short test of each GPU through the CUDA driver, libcuda.so.1, found at run time: data copied
// there comes back unchanged, and a kernel computes the same as a CPU (cli/doctor/host_test.h).
// gpu_test.cc declares the driver's functions, so that every build has the test.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "cli/doctor/gpu_facts.h"

namespace dlaunch {

// For the GPUs that programs see here, by bus ("0000:17:00.0"). Errc::unsupported: there is no
// CUDA, or no GPU for it; Errc::io: CUDA does not work.
Result<std::map<std::string, GpuTest>> test_gpus_by_cuda(bool speed);

}  // namespace dlaunch
