// The stacks of a running process as lines for people: of every thread, with function names and,
// with debug information, file and line; for Python programs py-spy's output, if it is in our PATH,
// in that of the process, or beside its Python; then the same of up to eight processes below it.
// The process may run, sleep, or be stopped; it goes on as before. It stands still for the
// milliseconds that reading its stacks takes, and as under a debugger a wait (epoll_wait, nanosleep
// …) may be cut short. A process that is already being traced, for example by gdb, is left alone.
//
// It must be of this user. Where the system allows tracing of descendants only (Yama, ptrace_scope
// 1), it must be a worker of this dlaunch, which spawn() lets us trace; for processes below the
// worker a line says that they may not be looked at.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "base/clock.h"

namespace dlaunch {

inline constexpr Duration kStacksLimit = std::chrono::seconds(5);

// Returns at once; the loop calls `done`, always once, soon after `limit` at the latest, with the
// results so far. A line says so if something could not be found out. A child does all the work, so
// the caller must have one thread; it may reap all children.
void dump_stacks(asio::io_context& loop, pid_t pid,
                 std::function<void(std::vector<std::string>)> done, Duration limit = kStacksLimit);

}  // namespace dlaunch
