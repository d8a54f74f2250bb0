// dlaunch's own exit codes. Otherwise it exits with the root-cause worker's own code, or
// 128+signal.
// The table in dlaunch(1), EXIT STATUS, says the same.
#pragma once

namespace dlaunch {

enum ExitCode {
  kExitOk = 0,
  kExitUsage = 64,         // a flag, value or combination that makes no sense
  kExitBadInput = 65,      // a file we were given is malformed (hostfile, config)
  kExitNoInput = 66,       // a file we were given cannot be read
  kExitRendezvous = 69,    // store or port not available, peers not reached
  kExitInternal = 70,      // a bug, or dlaunch's own agent was lost
  kExitSystem = 71,        // the system refused: fork, pipes, chdir, memory
  kExitCannotCreate = 73,  // log folder, error file or events cannot be written
  kExitTimeout = 75,       // --timeout passed
  kExitCorrupt = 76,       // --verify has found corrupt data
  kExitCannotExec = 126,   // program found but not executable
  kExitNotFound = 127,     // program not found
};

}  // namespace dlaunch
