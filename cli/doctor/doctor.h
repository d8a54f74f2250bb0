// `dlaunch doctor [OPTIONS]`: checks the hosts of a job before it runs. It is a job itself, with
// one worker on each host that the options or Slurm name, so it meets and reports whatever would
// keep a job from starting. Its workers, which are this program too, send rank 0 the facts of
// their hosts and measure pair by pair; rank 0 prints the findings.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace dlaunch {

inline constexpr const char* kDoctorWord = "doctor";
inline constexpr const char* kDoctorWorkerWord = "doctor-worker";

// The command line words of the doctor's job, from the words behind "doctor". "--json" is the
// doctor's own: rank 0 prints JSON.
std::vector<std::string> doctor_words(const std::vector<std::string>& words);
// Keeps the words about the hosts. The doctor, which looks once, does not need those about a job's
// output, its failures, or the start of its program.
Options doctor_options(Options options);
// Checks that the job's program is still the doctor's, not one from the words, and that it has
// hosts.
Result<void> check_doctor(const Options& options);

// Runs one of its workers and returns the exit code; rank 0's: 0: no problem, 1: a problem.
int run_doctor_worker();

}  // namespace dlaunch
