// dlaunchctl events, wait and tail: what happens in a job and what its workers print, as it comes,
// also under its next leader.
#pragma once

#include <optional>

#include "cli/ctl/jobs.h"

namespace dlaunch::ctl {

// Prints the newest events, a line each; follow: and later ones, until the job has ended. Throws a
// Failure.
void run_events(const RunningJob& job, bool follow);

// Prints the last lines of a worker's output, those of its stderr to our stderr. Throws a Failure.
void run_tail(const RunningJob& job, const Options& options);

// Waits for the job's end, but for no longer than `timeout`; returns dlaunch's exit code. Throws a
// Failure.
int run_wait(const RunningJob& job, std::optional<Duration> timeout);

}  // namespace dlaunch::ctl
