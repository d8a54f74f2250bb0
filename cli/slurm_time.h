// The rest of a Slurm job's time.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"

namespace dlaunch {

// From SLURM_JOB_END_TIME, which Slurm sets from 23.02 on, else from squeue, which may take 5 s.
// nullopt: no limit, or an unknown one.
std::optional<Duration> slurm_time_left(const std::string& job);

}  // namespace dlaunch
