// A short test of each GPU through the CUDA driver, libcuda.so.1, which is looked for at run time:
// what is copied there comes back as it was, and a kernel computes what a CPU does
// (cli/doctor/host_test.h). Its functions are declared in gpu_test.cc, so that it is there in every
// build.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "cli/doctor/gpu_facts.h"

namespace dlaunch {

// Of those that programs see here, by bus ("0000:17:00.0"). Errc::unsupported: there is no CUDA, or
// no GPU for it; Errc::io: it does not work.
Result<std::map<std::string, GpuTest>> test_gpus_by_cuda(bool speed);

}  // namespace dlaunch
