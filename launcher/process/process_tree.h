// The descendants of this process, wherever they have moved: sessions and process groups do not
// matter, parents do. This process must be a subreaper, so that orphans come back to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/hang_finder.h"

namespace dlaunch {

// Of this process. Zombies may be among them, as everywhere here.
std::vector<pid_t> children();

// Of `ancestor`, which is left out; children before grandchildren.
std::vector<pid_t> descendants_of(pid_t ancestor);

// One SIGKILL to each of them.
void kill_descendants_of(pid_t ancestor);

// As /proc has it; nullopt: it has gone, or we read its stacks just now.
std::optional<ProcessState> state_of_process(pid_t pid);

// What a process has taken of the CPUs so far, and the memory that it has now.
struct ProcessUse {
  Duration cpu{};
  std::uint64_t memory = 0;  // bytes
};
std::optional<ProcessUse> use_of_process(pid_t pid);

// It has begun to end, or has gone.
bool is_ending(pid_t pid);

// As ps shows it, 15 characters at most; "": it has gone.
std::string name_of_process(pid_t pid);

// A variable of the environment that a process was started with; nullopt: it has none, or has gone.
std::optional<std::string> environment_of(pid_t pid, const std::string& name);

// The name of a process that removes what others leave behind.
inline constexpr const char* kCleanerName = "dlaunch-cleaner";

// Kills and reaps until none is left; gives up after about 2 s on what cannot be killed (an
// uninterruptible sleep) and returns false then. A cleaner gets SIGTERM, and a second to follow it.
// Reaps every child, so the caller must not expect to wait for any later. Cheap where there is
// nothing to do.
bool kill_descendants();

}  // namespace dlaunch
