// The keeper: the process whose pid the user sees. It forks the agent, which does everything, and
// the two watch over each other, because only a survivor can clean up after a SIGKILL. Both are
// subreapers, so that descendants of workers that called setsid or forked twice come back to them.
//
// The keeper takes the user's signals and hands each on exactly once, as a byte in a pipe; the
// agent ignores direct copies (a terminal sends ^C to both). The end of that pipe tells the agent
// that the keeper is gone. SIGTSTP stops the keeper itself after it was handed on, for the shell's
// job control.
//
// The agent leads a process group of its own, so that a SIGKILL to the keeper's whole group (as of
// `timeout -s KILL`) spares it to clean up. Only where stdin is a terminal it stays in the
// keeper's: a terminal lets none but the foreground group read.
#pragma once

#include <functional>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

// Opens /dev/null as whichever of descriptors 0, 1 and 2 is closed, so that nothing else comes to
// stand there. To be called before anything is opened.
Result<void> open_standard_descriptors();

// What a process had before the keeper changed it, for workers to get back.
struct OriginalSignals {
  bool hangup_ignored = false;  // started under nohup: it stays so
};

// Runs `agent` in a child; it gets the pipe to read signal numbers from and returns the exit code.
// Returns that code in the keeper, once nothing of the job is left; kExitInternal if the agent was
// lost. `cleanup` is run last.
int run_kept(const std::function<int(UniqueFd signals, const OriginalSignals&)>& agent,
             const std::function<void()>& cleanup);

}  // namespace dlaunch
