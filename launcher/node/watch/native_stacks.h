// The stacks of native code, by ptrace and elfutils' libdw (a line says so if dlaunch was built
// without libdw). Blocks. Meant for a process of its own that may be killed: when it ends, the
// kernel lets the traced process go on as before. See launcher/node/watch/stacks.h.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace dlaunch {

void native_stacks(pid_t pid, const std::function<void(const std::string&)>& emit);

}  // namespace dlaunch
