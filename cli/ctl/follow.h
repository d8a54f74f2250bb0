// dlaunchctl events and wait: a job's events, as they come, also under its next leader.
#pragma once

#include "cli/ctl/jobs.h"

namespace dlaunch::ctl {

// Prints the newest events, a line each; follow: and later ones, until the job has ended. Throws a
// Failure.
void run_events(const RunningJob& job, bool follow);

// Waits for the job's end; returns dlaunch's exit code. Throws a Failure.
int run_wait(const RunningJob& job);

}  // namespace dlaunch::ctl
