// Starting one worker. The child shares our memory until it execs (as with vfork), so the call
// returns only once the program runs or has told at which stage and with which errno it failed;
// nothing is lost in a pipe, and launching hundreds of workers copies no page tables.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/report.h"

namespace dlaunch {

struct SpawnRequest {
  std::string path;  // of the program, resolved
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "K=V"
  std::string chdir;             // "": stay
  std::vector<int> cpus;         // to run on; empty: wherever we may
  int in = 0, out = 1, err = 2;  // descriptors that become 0, 1 and 2
  rlimit open_files{};           // RLIMIT_NOFILE that the worker gets
  bool ignore_hangup = false;
};

struct Spawned {
  pid_t pid = -1;
  UniqueFd pidfd;
};

struct SpawnError {
  Stage stage = Stage::none;
  int os_errno = 0;
  std::string what;  // "exec './trian': No such file or directory"
};

// The worker leads a process group of its own and dies with us (PR_SET_PDEATHSIG). Returns
// stage == none on success.
SpawnError spawn(const SpawnRequest& request, Spawned& worker);

// Where execvp would find the program: `name` itself if it has a slash, else the first executable
// in `path_variable`. Error: not_found, or io with os_errno EACCES.
Result<std::string> find_program(const std::string& name, const std::string& path_variable);

}  // namespace dlaunch
