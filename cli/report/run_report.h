// `dlaunch report DIR`: makes one HTML file from the folder that a job's --run-dir has filled. The
// file needs nothing else: no network, no other file.
#pragma once

#include <string>
#include <vector>

namespace dlaunch {

inline constexpr const char* kReportWord = "report";

// words: those behind "report": DIR [--out FILE]. FILE "-": stdout; default: DIR/report.html.
// Returns the exit code.
int run_report(const std::vector<std::string>& words);

}  // namespace dlaunch
