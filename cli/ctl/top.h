// dlaunchctl top: the activity of a job's workers, look by look.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "cli/ctl/jobs.h"
#include "cli/ctl/options.h"

namespace dlaunch::ctl {

// A status as text. With an earlier one (null: there is none) CPU time is for the time in between,
// else the mean since each process was started.
std::string render_top(const nlohmann::json& now, const nlohmann::json& before);

// Cuts the text to that many lines and columns, for a screen that shows nothing else.
std::string cut_to_screen(const std::string& text, int lines, int columns);

// Prints until the job has ended, or once. Throws a Failure.
void run_top(const RunningJob& job, const Options& options);

}  // namespace dlaunch::ctl
