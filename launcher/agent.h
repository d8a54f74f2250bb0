// run_job: executes a Plan on this node and returns dlaunch's exit code. Spawns the workers,
// supervises them, relays signals, ends the job in good order and prints the report.
#pragma once

#include "launcher/job_dir.h"
#include "launcher/keeper.h"
#include "launcher/office.h"
#include "launcher/plan.h"

namespace dlaunch {

int run_job(const Plan& plan);

// Leads a job whose workers are all other agents', until it is over; the exit code. Where we are is
// announced by the office, whose loss ends the job.
int lead_job(const Plan& plan, const JobDir& job_dir, UniqueFd signals,
             const OriginalSignals& original, Office& office);

}  // namespace dlaunch
