// The descendants of this process, found by their parents whatever sessions and process groups they
// are in. This process must be a subreaper, so that orphans come back to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "elastic/hang_finder.h"

namespace dlaunch {

// Of this process. All functions here may return zombies, too.
std::vector<pid_t> children();

// Of `ancestor`, without itself; children before grandchildren.
std::vector<pid_t> descendants_of(pid_t ancestor);

// One SIGKILL to each of them.
void kill_descendants_of(pid_t ancestor);

// From /proc; nullopt: it has ended, or we are reading its stacks just now.
std::optional<ProcessState> state_of_process(pid_t pid);

// A process's CPU time so far, and its present memory.
struct ProcessUse {
  Duration cpu{};
  std::uint64_t memory = 0;  // bytes
};
std::optional<ProcessUse> use_of_process(pid_t pid);

// The CPU time so far of a process and its descendants that still run.
Duration cpu_of_tree(pid_t pid);

// It has begun to end, or has gone.
bool is_ending(pid_t pid);
// It is a zombie, or has gone.
bool has_ended(pid_t pid);

// What delays the end of a process that SIGKILL has reached, in words: "an uninterruptible sleep in
// nfs_wait_on_request"; "": none of its threads shows it.
std::string what_delays_end(pid_t pid);

// As ps shows it, at most 15 characters; "": it has gone.
std::string name_of_process(pid_t pid);

// A variable of a process's initial environment; nullopt: it is not set, or the process has gone.
std::optional<std::string> environment_of(pid_t pid, const std::string& name);

// The name of a process that cleans up after others.
inline constexpr const char* kCleanerName = "dlaunch-cleaner";

// Kills and reaps until no descendant is left. Gives up after about 2 s on processes that cannot be
// killed (an uninterruptible sleep) and returns false then. A cleaner gets SIGTERM, and a second to
// end. Reaps every child, so the caller must not expect to wait for one later. Cheap if there are
// none. It leaves the children `spared` and their descendants alone.
bool kill_descendants(const std::vector<pid_t>& spared = {});

}  // namespace dlaunch
