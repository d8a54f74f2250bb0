// The keeper: the process whose pid the user sees. It forks the agent, which does all the work, and
// the two watch over each other, because only a survivor can clean up after a SIGKILL. Both are
// subreapers, so that descendants of workers that called setsid or forked twice come back to them.
//
// The keeper takes the user's signals and hands each on exactly once, as a byte in a pipe; the
// agent ignores direct copies (a terminal sends ^C to both). When that pipe closes, the agent knows
// that the keeper is gone. After the keeper has handed a SIGTSTP on, it stops itself, for the
// shell's job control.
//
// The agent leads a process group of its own, so that a SIGKILL to the keeper's whole group (as of
// `timeout -s KILL`) spares it to clean up. If stdin is a terminal it stays in the keeper's group:
// a terminal lets only the foreground group read.
#pragma once

#include <functional>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

// Opens /dev/null as each of descriptors 0, 1 and 2 that is closed, so that no other file gets
// these numbers. Call it before anything is opened.
Result<void> open_standard_descriptors();

// Settings that the keeper changed, for workers to get back.
struct OriginalSignals {
  bool hangup_ignored = false;  // started under nohup: stays ignored
};

// Runs `agent` in a child; it gets the pipe to read signal numbers from and returns the exit code.
// In the keeper, returns that code once nothing of the job is left; kExitInternal if the agent was
// lost. Runs `cleanup` last.
int run_kept(const std::function<int(UniqueFd signals, const OriginalSignals&)>& agent,
             const std::function<void()>& cleanup);

}  // namespace dlaunch
