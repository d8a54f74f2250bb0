// The stacks of a running process as lines for people: of every thread, with function names and,
// where debug information is there, file and line; of Python programs what py-spy says, if it is in
// PATH; then the same of up to eight processes below it. A process may run, sleep, or be stopped;
// it goes on as it was. It stands still for the milliseconds that reading its stacks takes, and as
// under a debugger a wait (epoll_wait, nanosleep …) may be cut short. One that is being traced
// already, as by gdb, is not touched.
//
// It must be of this user. Where the system allows tracing of descendants only (Yama, ptrace_scope
// 1), it must be a worker of this dlaunch, and of those below it is only said that they may not be
// looked at: spawn() lets workers be traced by us.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include <asio/io_context.hpp>

#include "base/clock.h"

namespace dlaunch {

inline constexpr Duration kStacksLimit = std::chrono::seconds(5);

// Returns at once; `done` is called by the loop, always once, soon after `limit` at the latest:
// with what is known by then. A line says so where something could not be found out. All work is
// done by a child, so the caller must have one thread; it may reap all children.
void dump_stacks(asio::io_context& loop, pid_t pid,
                 std::function<void(std::vector<std::string>)> done, Duration limit = kStacksLimit);

}  // namespace dlaunch
