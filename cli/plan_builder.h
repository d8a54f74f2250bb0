// From Options to a Plan: converts every value and judges every combination, before anything
// starts. Refuses a flag that would do nothing in the given combination, with the reason.
#pragma once

#include <string>
#include <vector>

#include "base/exit_code.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

struct BuiltPlan {
  Plan plan;
  std::vector<std::string> warnings;  // shown unless --quiet
  std::vector<std::string> notes;     // shown with --verbose
  std::vector<std::string> bindings;  // the picture of --report-bindings
  std::vector<Segment> segments;      // of several programs, including those in files
};

// Errors: usage and unsupported (64), protocol (65: a malformed file), not_found (66: an unreadable
// file), io (73: a file we could not create, or a machine that cannot be read).
//
// part_of: the job has a leader elsewhere, which has chosen its hosts.
Result<BuiltPlan> build_plan(const Options& options, const Machine& machine,
                             const NodesPlan* part_of = nullptr);

LogLevel log_level_of(const Options& options);

// dlaunch's exit code for errors of the command line.
ExitCode exit_code_of(const Error& error);

}  // namespace dlaunch
