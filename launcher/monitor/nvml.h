// Asks NVIDIA's management library, libnvidia-ml.so.1, which is looked for at run time; its
// functions are declared in nvml.cc as its documentation has them. A call may take long or never
// return where a driver is in trouble, so dlaunch's agents leave it to a process of its own
// (launcher/monitor/gpu_watch.h).
#pragma once

#include <vector>

#include "base/result.h"
#include "launcher/monitor/gpu_figures.h"

namespace dlaunch {

// All GPUs, by bus. Errc::unsupported: the library is not there; Errc::io: it, or the driver, does
// not work.
Result<std::vector<GpuFigures>> ask_nvml();

}  // namespace dlaunch
