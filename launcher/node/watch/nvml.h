// Queries NVIDIA's management library, libnvidia-ml.so.1, found at run time; nvml.cc declares its
// functions as in its documentation. A call may take long or never return when a driver is in
// trouble, so dlaunch's agents leave it to a process of its own (launcher/node/watch/gpu_watch.h).
#pragma once

#include <vector>

#include "base/result.h"
#include "launcher/node/watch/gpu_figures.h"

namespace dlaunch {

// All GPUs, by bus. Errc::unsupported: the library is missing; Errc::io: the library or the driver
// does not work.
Result<std::vector<GpuFigures>> ask_nvml();

}  // namespace dlaunch
