// The process that serves the MPI programs of one node in one round by libpmix: a program of its
// own, so that the library's failures do not harm the job. Its order comes on stdin, as a u32
// length and pmix_job.h's bytes. It ends when stdin is closed, or by SIGTERM, and first removes
// what ranks asked it to remove. On stdout it prints "ready" when ranks can connect, "rank RANK"
// for each that comes to MPI_Init(), "abort RANK CODE" for one that calls MPI_Abort(), and "spawn
// RANK" for one that calls MPI_Comm_spawn(), which gets an error.
#pragma once

namespace dlaunch {

// The word on that process's command line.
inline constexpr const char* kPmixServerWord = "pmix-server";
// That process's work. Returns its exit code.
int run_pmix_server();

}  // namespace dlaunch
