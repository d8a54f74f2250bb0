// The keeper: the process whose pid the user sees. It forks the agent, which does everything, and
// the two watch over each other, because only a survivor can clean up after a SIGKILL. Both are
// subreapers, so that descendants of workers that called setsid or forked twice come back to them.
//
// The keeper takes the user's signals and hands each on exactly once, as a byte in a pipe; the
// agent ignores direct copies (a terminal sends ^C to both). The end of that pipe tells the agent
// that the keeper is gone. SIGTSTP stops the keeper itself after it was handed on, for the shell's
// job control.
#pragma once

#include <functional>

#include "base/unique_fd.h"

namespace dlaunch {

// What a process had before the keeper changed it, for workers to get back.
struct OriginalSignals {
  bool hangup_ignored = false;  // started under nohup: it stays so
};

// Runs `agent` in a child; it gets the pipe to read signal numbers from and returns the exit code.
// Returns that code in the keeper, once nothing of the job is left; kExitInternal if the agent was
// lost. `cleanup` is run last, in whichever of the two lives.
int run_kept(const std::function<int(UniqueFd signals, const OriginalSignals&)>& agent,
             const std::function<void()>& cleanup);

}  // namespace dlaunch
