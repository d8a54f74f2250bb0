// TerminalLender gives the user's terminal to workers that a debugger runs, one at a time, and
// takes it back when they end. ^Z in the debugger stops the whole job.
#pragma once

#include "launcher/node/workers/processes.h"
#include "launcher/node/workers/terminal_turns.h"
#include "launcher/process/terminal.h"

namespace dlaunch {

class TerminalLender {
 public:
  // `processes` must outlive this object.
  TerminalLender(Terminal terminal, const Processes& processes)
      : terminal_(std::move(terminal)), processes_(processes) {}

  // The worker was started in the terminal's foreground.
  void started(Slot slot) { turns_.has(slot); }
  // Workers may have stopped: looks which of them ask for the terminal.
  void look();
  void ended(Slot slot);
  // The workers are about to continue after ^Z.
  void before_continue();

 private:
  void on_stop(Slot slot, int signal);
  void give(Slot slot);

  Terminal terminal_;
  const Processes& processes_;
  TerminalTurns turns_;
};

}  // namespace dlaunch
