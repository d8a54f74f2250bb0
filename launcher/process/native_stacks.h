// The stacks of native code, by ptrace and elfutils' libdw (a line says so where dlaunch was built
// without). Blocks; meant for a process of its own that ends afterwards, be it killed: the kernel
// then lets the traced process go on as it was. See launcher/process/stacks.h.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace dlaunch {

void native_stacks(pid_t pid, const std::function<void(const std::string&)>& emit);

}  // namespace dlaunch
