// run_job: executes a Plan on this node and returns dlaunch's exit code. Spawns the workers,
// supervises them, relays signals, ends the job in good order and prints the report.
#pragma once

#include "launcher/plan.h"

namespace dlaunch {

int run_job(const Plan& plan);

}  // namespace dlaunch
