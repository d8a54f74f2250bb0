// The process that serves the MPI programs of one node in one round by libpmix: a program of its
// own, so that a job is none the worse for what that library does. Its order comes on stdin, as a
// u32 length and pmix_job.h's bytes; it ends with stdin, or by SIGTERM, and first removes what
// ranks asked to be removed after them. On stdout it says "ready" when ranks are let in, "rank
// RANK" of each that comes to MPI_Init(), "abort RANK CODE" of one that calls MPI_Abort(), and
// "spawn RANK" of one that calls MPI_Comm_spawn(), which gets an error.
#pragma once

namespace dlaunch {

// The word on that process's command line.
inline constexpr const char* kPmixServerWord = "pmix-server";
// Its work, to its exit code.
int run_pmix_server();

}  // namespace dlaunch
