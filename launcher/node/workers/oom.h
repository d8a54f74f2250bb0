// Evidence that the kernel killed for lack of memory: our memory cgroup's own count of such kills.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dlaunch {

struct OomCounter {
  bool known = false;
  std::uint64_t kills = 0;
  std::string cgroup;       // "/user.slice/…"
  std::uint64_t limit = 0;  // bytes; 0: none
};

// The counter of this process's cgroup, version 2 or 1.
OomCounter read_oom_counter();

// "memory cgroup /x (limit 2 GiB): out-of-memory kills rose from 0 to 1"; "" if they did not rise.
std::string describe_oom(const OomCounter& before, const OomCounter& after);

// The number behind `name` in "name number" lines (memory.events, memory.oom_control). Pure.
bool find_count(std::string_view text, std::string_view name, std::uint64_t& count);

}  // namespace dlaunch
