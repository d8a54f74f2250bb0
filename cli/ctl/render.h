// Answers of a job as text for people, each line with its newline. dlaunchctl(1) documents the
// JSON. Throws nlohmann's exceptions if it differs.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/ctl/jobs.h"

namespace dlaunch::ctl {

// The ranks for which others have waited for long, a line for each of the longest waits.
std::string late_in_words(const nlohmann::json& status);
// What the program reports, as a line; "": nothing.
std::string progress_in_words(const nlohmann::json& status);
std::string render_status(const nlohmann::json& status);
std::string render_goodput(const nlohmann::json& goodput);
std::string render_stacks(const nlohmann::json& stacks);
std::string render_list(const std::vector<RunningJob>& jobs);

// "310 ms", "7.25 s", "4 min 12 s", "3 h 5 min", "2 d 1 h"
std::string age(double seconds);

}  // namespace dlaunch::ctl
