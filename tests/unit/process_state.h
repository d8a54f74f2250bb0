// The state of a process or thread in /proc.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace dlaunch {

// The letter of proc(5) for the one whose folder in /proc this is; 'Z' also if it has gone.
inline char state_in(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  return name_end == std::string::npos ? 'Z' : text.at(name_end + 2);
}

// The sockets of this process. Its other descriptors come and go.
inline long open_sockets() {
  long count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    count += target.string().starts_with("socket:") ? 1 : 0;
  }
  return count;
}

inline char state_of(pid_t pid) { return state_in("/proc/" + std::to_string(pid)); }

}  // namespace dlaunch
