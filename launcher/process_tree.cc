#include "launcher/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace dlaunch {
namespace {

constexpr Duration kPatience = std::chrono::seconds(2);

struct ProcessInfo {
  pid_t parent = 0;
  bool zombie = false;
};

// From /proc/PID/stat: "pid (comm) state ppid …", where comm may hold anything, ')' included.
bool read_process(int proc, const char* pid, ProcessInfo& info) {
  const std::string path = std::string(pid) + "/stat";
  const UniqueFd fd(::openat(proc, path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text - 1) : -1;
  if (n <= 0) return false;
  text[n] = '\0';
  const char* end = std::strrchr(text, ')');
  char state = '?';
  if (end == nullptr || std::sscanf(end + 1, " %c %d", &state, &info.parent) != 2) return false;
  info.zombie = state == 'Z' || state == 'X';
  return true;
}

std::multimap<pid_t, pid_t> children_of_all() {
  std::multimap<pid_t, pid_t> children;
  DIR* dir = ::opendir("/proc");
  if (dir == nullptr) return children;
  while (const dirent* entry = ::readdir(dir)) {
    pid_t pid = 0;
    const char* name = entry->d_name;
    const auto [end, err] = std::from_chars(name, name + std::strlen(name), pid);
    if (err != std::errc() || *end != '\0') continue;
    ProcessInfo info;
    if (read_process(::dirfd(dir), name, info) && !info.zombie) children.emplace(info.parent, pid);
  }
  ::closedir(dir);
  return children;
}

}  // namespace

std::vector<pid_t> descendants() {
  const auto children = children_of_all();
  std::vector<pid_t> found = {::getpid()};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [from, to] = children.equal_range(found[i]);
    for (auto it = from; it != to; ++it) found.push_back(it->second);
  }
  found.erase(found.begin());
  return found;
}

void kill_descendants_once() {
  for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
}

void kill_descendants() {
  const auto deadline = steady_now() + kPatience;
  while (true) {
    // A process that forks while we look is found in the next round: its child comes to us.
    const auto left = descendants();
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if ((left.empty() && descendants().empty()) || steady_now() >= deadline) break;
    ::poll(nullptr, 0, 2);
  }
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

}  // namespace dlaunch
