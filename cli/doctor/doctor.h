// `dlaunch doctor [OPTIONS]`: looks at the hosts of a job before it is run. It is a job itself, of
// one worker on each host that the options or Slurm name, so whatever would keep a job from
// starting is met and told as it would be there; its workers, which are this program too, tell rank
// 0 of their hosts, measure pair by pair, and rank 0 prints what was found.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace dlaunch {

inline constexpr const char* kDoctorWord = "doctor";
inline constexpr const char* kDoctorWorkerWord = "doctor-worker";

// The words of the command line that runs the job, for those behind "doctor". "--json" is the
// doctor's own: rank 0 prints JSON.
std::vector<std::string> doctor_words(const std::vector<std::string>& words);
// What of them is about the hosts: how a job shows its output, how it goes on after failures, and
// how its program is started is not the doctor's, who looks once.
Options doctor_options(Options options);
// Whether that job's program is still the doctor's, not one that the words brought along, and its
// hosts are there.
Result<void> check_doctor(const Options& options);

// One of its workers, to its exit code; rank 0's: 0 if there was no problem, 1 if there was.
int run_doctor_worker();

}  // namespace dlaunch
