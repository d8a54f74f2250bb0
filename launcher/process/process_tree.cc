#include "launcher/process/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "base/unique_fd.h"
#include "launcher/process/own_binary.h"

namespace dlaunch {
namespace {

constexpr Duration kTreePatience = std::chrono::seconds(2);
constexpr Duration kCleanerPatience = std::chrono::seconds(1);

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Dir = std::unique_ptr<DIR, CloseDir>;

// Calls `use` for each entry that is a number.
template <class Use>
void for_each_number(const std::string& folder, const Use& use) {
  const Dir dir(::opendir(folder.c_str()));
  while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr) {
    pid_t number = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    const auto [stop, err] = std::from_chars(entry->d_name, end, number);
    if (err == std::errc() && stop == end) use(number);
  }
}

std::string read_proc(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[4096];
  ssize_t n = 0;
  while (fd && (n = ::read(fd.get(), bytes, sizeof bytes)) > 0) {
    text.append(bytes, static_cast<std::size_t>(n));
  }
  return text;
}

// "12 15 ": of all threads, because each may have forked.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  const std::string tasks = "/proc/" + std::to_string(parent) + "/task";
  for_each_number(tasks, [&](pid_t thread) {
    const std::string text = read_proc(tasks + "/" + std::to_string(thread) + "/children");
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
      pid_t pid = 0;
      const auto [stop, err] = std::from_chars(at, end, pid);
      if (err == std::errc()) children.push_back(pid);
      at = stop + 1;
    }
  });
  return children;
}

// What follows the name in /proc/PID/stat, "pid (comm) state ppid …", where comm may hold anything,
// ')' included. "": the process has gone.
std::string text_after_name(const std::string& stat) {
  const auto comm_end = stat.rfind(')');
  return comm_end == std::string::npos ? "" : stat.substr(comm_end + 1);
}

std::string stat_of(pid_t pid) {
  return text_after_name(read_proc("/proc/" + std::to_string(pid) + "/stat"));
}

// 0: the process has gone, or has no parent.
pid_t parent_of(pid_t pid) {
  pid_t parent = 0;
  return std::sscanf(stat_of(pid).c_str(), " %*c %d", &parent) == 1 ? parent : 0;
}

// For kernels without lists of children: of all processes.
std::multimap<pid_t, pid_t> children_of_all() {
  std::multimap<pid_t, pid_t> children;
  for_each_number("/proc", [&](pid_t pid) {
    if (const pid_t parent = parent_of(pid); parent > 0) children.emplace(parent, pid);
  });
  return children;
}

bool kernel_lists_children() {
  static const bool lists = ::access("/proc/thread-self/children", R_OK) == 0;
  return lists;
}

// Reaps ended children. False: no child is left, hence no descendant, because a subreaper's
// orphaned descendants are its children.
bool reap_children() {
  while (true) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG | __WALL);
    if (pid == 0) return true;
    if (pid < 0 && errno != EINTR) return false;
  }
}

bool runs_our_program(pid_t pid) { return is_own_binary("/proc/" + std::to_string(pid) + "/exe"); }

void kill_or_ask(pid_t pid, bool patient) {
  if (!patient || name_of_process(pid) != kCleanerName)
    return static_cast<void>(::kill(pid, SIGKILL));
  ::kill(pid, SIGTERM);
  ::kill(pid, SIGCONT);
}

ProcessState untraced(char state) {
  switch (state) {
    case 'R':
      return ProcessState::running;
    case 'D':
      return ProcessState::uninterruptible;
    case 'T':
      return ProcessState::stopped;
    default:
      return ProcessState::sleeping;
  }
}

// As in proc(5); 'X': there is no such process.
struct StateAndFlags {
  char state = 'X';
  unsigned long flags = 0;
};
StateAndFlags state_and_flags_of(pid_t pid) {
  StateAndFlags its;
  const auto text = stat_of(pid);
  const int found =
      std::sscanf(text.c_str(), " %c %*d %*d %*d %*d %*d %lu", &its.state, &its.flags);
  return found == 2 ? its : StateAndFlags();
}

bool has_ended(char state) { return state == 'Z' || state == 'X'; }

// The tracer is a child of ours that reads stacks, or a program that the child runs for that.
bool is_our_tracer(pid_t tracer) {
  const pid_t parent = parent_of(tracer);
  if (parent == ::getpid()) return runs_our_program(tracer);
  return parent > 0 && parent_of(parent) == ::getpid() && runs_our_program(parent);
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t ancestor) {
  std::vector<pid_t> found = {ancestor};
  if (kernel_lists_children()) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto children = children_of(found[i]);
      found.insert(found.end(), children.begin(), children.end());
    }
  } else {
    const auto children = children_of_all();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto [from, to] = children.equal_range(found[i]);
      for (auto it = from; it != to; ++it) found.push_back(it->second);
    }
  }
  found.erase(found.begin());
  return found;
}

std::vector<pid_t> children() {
  if (kernel_lists_children()) return children_of(::getpid());
  const auto all = children_of_all();
  std::vector<pid_t> own;
  const auto [from, to] = all.equal_range(::getpid());
  for (auto it = from; it != to; ++it) own.push_back(it->second);
  return own;
}

void kill_descendants_of(pid_t ancestor) {
  for (const pid_t pid : descendants_of(ancestor)) ::kill(pid, SIGKILL);
}

std::optional<ProcessState> state_of_process(pid_t pid) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    const std::string text = read_proc("/proc/" + std::to_string(pid) + "/status");
    const auto field = [&](const char* name) {
      const auto at = text.find(name);
      return at == std::string::npos ? "" : text.c_str() + at + std::strlen(name);
    };
    const char* const state = field("\nState:\t");
    if (*state == '\0' || has_ended(*state)) return std::nullopt;
    const pid_t tracer = std::atoi(field("\nTracerPid:\t"));
    if (tracer == 0 && *state != 't') return untraced(*state);
    if (is_our_tracer(tracer)) return std::nullopt;
    if (!is_ending(tracer) && tracer != ::getpid()) return ProcessState::traced;
    // The tracer ended while we read, and we cannot tell whether it was ours. While it detaches
    // the kernel may name the parent in its place, which is us.
  }
  return std::nullopt;
}

std::optional<ProcessUse> use_of_process(pid_t pid) {
  unsigned long user = 0, system = 0;
  long pages = 0;
  if (std::sscanf(stat_of(pid).c_str(),
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d "
                  "%*u %*u %ld",
                  &user, &system, &pages) != 3) {
    return std::nullopt;
  }
  static const long ticks = ::sysconf(_SC_CLK_TCK), page = ::sysconf(_SC_PAGESIZE);
  const auto spent = static_cast<double>(user + system) / static_cast<double>(ticks);
  return ProcessUse{std::chrono::duration_cast<Duration>(std::chrono::duration<double>(spent)),
                    static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page)};
}

Duration cpu_of_tree(pid_t pid) {
  Duration sum{};
  auto pids = descendants_of(pid);
  pids.push_back(pid);
  for (const pid_t each : pids) {
    if (const auto use = use_of_process(each)) sum += use->cpu;
  }
  return sum;
}

bool is_ending(pid_t pid) {
  constexpr unsigned long kExiting = 4;  // PF_EXITING, proc(5)
  const auto [state, flags] = state_and_flags_of(pid);
  return has_ended(state) || (flags & kExiting) != 0;
}

bool has_ended(pid_t pid) { return has_ended(state_and_flags_of(pid).state); }

// The function of the kernel in which a thread sleeps is for the eyes of those that may trace it.
std::string what_delays_end(pid_t pid) {
  std::string what;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for_each_number(tasks, [&](pid_t thread) {
    const std::string folder = tasks + "/" + std::to_string(thread);
    char state = 'X';
    std::sscanf(text_after_name(read_proc(folder + "/stat")).c_str(), " %c", &state);
    if (state == 'D') {
      const std::string in = read_proc(folder + "/wchan");
      what = "an uninterruptible sleep" + (in.empty() || in == "0" ? "" : " in " + in);
    }
    if (state == 't' && what.empty()) what = "a debugger that holds it";
    if (state == 'R' && what.empty()) what = "the kernel, which frees what it had";
  });
  return what;
}

std::string name_of_process(pid_t pid) {
  std::string name = read_proc("/proc/" + std::to_string(pid) + "/comm");
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

std::optional<std::string> environment_of(pid_t pid, const std::string& name) {
  const std::string all = '\0' + read_proc("/proc/" + std::to_string(pid) + "/environ");
  const auto at = all.find('\0' + name + "=");
  if (at == std::string::npos) return std::nullopt;
  return std::string(all.c_str() + at + 1 + name.size() + 1);
}

bool kill_descendants(const std::vector<pid_t>& spared) {
  const auto begun = steady_now();
  while (reap_children()) {
    auto ours = children();
    std::erase_if(ours, [&](pid_t pid) { return std::ranges::find(spared, pid) != spared.end(); });
    if (ours.empty() && !spared.empty()) return true;
    const auto spent = steady_now() - begun;
    if (spent >= kTreePatience) return false;
    const bool patient = spent < kCleanerPatience;
    // Children at once, because a process that forks and leaves again and again is hard to catch;
    // its orphans come to us and are children the next time.
    for (const pid_t pid : ours) kill_or_ask(pid, patient);
    for (const pid_t child : ours) {
      for (const pid_t pid : descendants_of(child)) kill_or_ask(pid, patient);
    }
    ::poll(nullptr, 0, 1);
  }
  return true;
}

}  // namespace dlaunch
