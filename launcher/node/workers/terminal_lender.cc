#include "launcher/node/workers/terminal_lender.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

namespace dlaunch {

void TerminalLender::look() {
  for (const Slot slot : processes_.running_slots()) {
    siginfo_t info{};
    const auto id = static_cast<id_t>(processes_.pid(slot));
    const bool stopped = ::waitid(P_PID, id, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0;
    if (stopped) on_stop(slot, info.si_status);
  }
}

void TerminalLender::on_stop(Slot slot, int signal) {
  if (signal == SIGTTIN || signal == SIGTTOU) {
    const bool had = turns_.holder() == slot;
    const bool gets = turns_.asks(slot);
    if (!had) {
      log_warn("rank {} (pid {}) failed: {}", processes_.place(slot).rank, processes_.pid(slot),
               gets ? "its debugger has the terminal"
                    : "its debugger gets the terminal when the present one ends");
    }
    if (gets) give(slot);
  } else if (signal == SIGTSTP && turns_.holder() == slot) {
    terminal_.take_back();
    ::kill(::getppid(), SIGTSTP);  // the keeper: the whole job stops, and the shell has its prompt
  }
}

void TerminalLender::give(Slot slot) { terminal_.give(processes_.pid(slot)); }

void TerminalLender::ended(Slot slot) {
  if (!turns_.ended(slot)) return;
  terminal_.take_back();
  if (const auto next = turns_.holder()) give(*next);
}

void TerminalLender::before_continue() {
  if (const auto holder = turns_.holder()) give(*holder);
}

}  // namespace dlaunch
