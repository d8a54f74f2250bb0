// PBS starts a program on another host of its job, but passes nothing to it and brings nothing
// back: its stdin is empty, and its output goes into the job's files. So the program connects back
// to its starter, and these connections carry its input and output.
//
//   SshStarter        dlaunch --pbs-login PBSDSH INDEX HOST ADDRESS DLAUNCH
//   that one          listens at ADDRESS and runs pbsdsh -n INDEX -- DLAUNCH --pbs-task HOST:PORT
//   there, by PBS     dlaunch --pbs-task HOST:PORT
//                     connects three times, for stdin, stdout and stderr, and goes on as
//                     dlaunch --ssh-node (ssh_talk.h)
//
// Both prove that they belong to the same job of PBS by PBS_JOBCOOKIE, which PBS gives to each
// process of the job and uses to identify them itself. The connections are not encrypted.
//
// DLAUNCH is our own path: dlaunch must be installed there on each host. INDEX is the host's first
// line in PBS_NODEFILE, counted from 0, for OpenPBS and for Torque.
#pragma once

#include <string>
#include <vector>

namespace dlaunch {

inline constexpr const char* kPbsLoginWord = "--pbs-login";
inline constexpr const char* kPbsTaskWord = "--pbs-task";

// Carries our stdin, stdout and stderr to and from the program there until it has closed its own.
// Returns an exit code; stderr gets our error, or pbsdsh's message.
int run_pbs_login(const std::vector<std::string>& words);

// Runs on the other host: makes the connections our stdin, stdout and stderr. Returns an exit code,
// 0 on success.
int connect_pbs_task(const std::string& endpoint);

}  // namespace dlaunch
