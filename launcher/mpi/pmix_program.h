// The process that serves the MPI programs of one node in one round by libpmix: a program of its
// own, so that a job is none the worse for what that library does. Its order comes on stdin, as a
// u32 length and pmix_job.h's bytes; it ends with stdin. On stdout it says "abort RANK CODE" when
// a rank calls MPI_Abort().
#pragma once

namespace dlaunch {

// The word on that process's command line.
inline constexpr const char* kPmixServerWord = "pmix-server";
// Its work, to its exit code.
int run_pmix_server();

}  // namespace dlaunch
