// Starts one worker, in one of two ways. A job's first worker shares our memory until it execs (as
// with vfork): the call returns once the program runs or has reported at which stage and with which
// errno it failed, so that no other worker is started in vain. The others are forked and exec while
// the next one is being started, which is several times faster; one that fails all the same says so
// in a pipe and exits with 127. Needs Linux 5.3 (pidfds that can be waited for).
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/wire/worker_end.h"

namespace dlaunch {

struct SpawnRequest {
  std::string path;  // of the program, resolved; relative to `chdir`
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "K=V"
  std::string chdir;             // "": stay
  std::vector<int> cpus;         // to run on; empty: wherever we may
  int in = 0, out = 1, err = 2;  // become 0, 1 and 2; each is itself or above 2
  int inherited = -1;            // stays open as it is; -1: none
  // Becomes descriptor heartbeat_as, which must not be `inherited` or failure_pipe; -1: none.
  int heartbeat = -1;
  int heartbeat_as = -1;
  rlimit open_files{};  // RLIMIT_NOFILE that the worker gets
  bool ignore_hangup = false;
  bool stop_at_start = false;  // SIGSTOP before the program's first instruction; not with
                               // wait_for_exec
  bool foreground = false;     // its group becomes the foreground of the terminal that `in` is
  int death_signal = SIGKILL;  // that the worker gets when we die
  int worker = 0;
  bool wait_for_exec = true;
  int failure_pipe = -1;  // writing end, for !wait_for_exec
};

struct Spawned {
  pid_t pid = -1;
  UniqueFd pidfd;
  std::string gpus = {};     // CUDA_VISIBLE_DEVICES there
  UniqueFd heartbeats = {};  // the end of its pipe to read from, which never blocks
};

// A forked child's message in the failure pipe.
struct SpawnFailure {
  int worker;
  Stage stage;
  int os_errno;
};
// Describes it in a sentence.
SpawnError explain_failure(const SpawnRequest& request, Stage stage, int os_errno);

// The worker leads a process group of its own and dies with us (PR_SET_PDEATHSIG). Returns
// stage == none on success.
SpawnError spawn(const SpawnRequest& request, Spawned& worker);

// Starts a program that is no worker; it gets our own limit of open files.
Result<Spawned> spawn_helper(SpawnRequest request);

// Checks, without spawn(), whether it would fail: the folder, and the program there.
SpawnError foresee_failure(const SpawnRequest& request);

// Where execvp would find the program after a chdir to `folder` ("": none): `name` itself if it has
// a slash, else the first executable in `path_variable`. Error: not_found, or io with os_errno
// EACCES.
Result<std::string> find_program(const std::string& name, const std::string& path_variable,
                                 const std::string& folder = "");

}  // namespace dlaunch
