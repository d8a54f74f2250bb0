#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "base/nearest.h"
#include "base/rank_set.h"

namespace dlaunch {
namespace {

constexpr const char* kScriptEndings[] = {".py", ".sh", ".bash", ".pl", ".rb", ".jl", ".lua", ".R"};

constexpr std::size_t kStackBytes = 64 << 10;

// All data for the child, prepared beforehand: between clone and exec it may only make system
// calls, because it runs on our memory.
struct Child {
  const char* path;
  char* const* argv;
  char* const* env;
  const char* chdir;
  const cpu_set_t* cpus;
  std::size_t cpus_bytes;
  int stdio[3];
  int inherited;
  int heartbeat, heartbeat_as;
  rlimit open_files;
  bool ignore_hangup;
  bool stop_at_start;
  bool foreground;
  int death_signal;
  pid_t parent;
  int worker;
  int failure_pipe;  // -1: the parent sees our memory
  Stage failed_stage;
  int failed_errno;
};

void fail(Child& child, Stage stage) {
  child.failed_errno = errno;
  child.failed_stage = stage;
  if (child.failure_pipe >= 0) {
    const SpawnFailure failure{child.worker, stage, child.failed_errno};
    [[maybe_unused]] const auto written = ::write(child.failure_pipe, &failure, sizeof failure);
  }
  ::_exit(127);
}

void reset_signals(const Child& child) {
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal == SIGHUP && child.ignore_hangup) continue;
    ::signal(signal, SIG_DFL);  // refused for SIGKILL and SIGSTOP, which do not need it
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// exec would close a descriptor that dup2 copied onto itself.
bool become(int from, int fd) {
  return (from == fd ? ::fcntl(fd, F_SETFD, 0) : ::dup2(from, fd)) >= 0;
}

int run_child(void* argument) {
  Child& child = *static_cast<Child*>(argument);
  ::prctl(PR_SET_PDEATHSIG, child.death_signal);
  if (::getppid() != child.parent) ::_exit(127);  // the parent died before the line above
  // Lets our own children look at its stacks, which Yama forbids otherwise; exec keeps this.
  ::prctl(PR_SET_PTRACER, child.parent);
  ::setpgid(0, 0);
  for (int fd = 0; fd < 3; ++fd) {
    if (!become(child.stdio[fd], fd)) fail(child, Stage::stdio);
  }
  if (child.heartbeat >= 0 && !become(child.heartbeat, child.heartbeat_as)) {
    fail(child, Stage::stdio);
  }
  if (child.inherited >= 0) ::fcntl(child.inherited, F_SETFD, 0);
  if (child.chdir != nullptr && ::chdir(child.chdir) != 0) fail(child, Stage::chdir);
  if (child.cpus != nullptr && ::sched_setaffinity(0, child.cpus_bytes, child.cpus) != 0) {
    fail(child, Stage::bind_cpu);
  }
  ::setrlimit(RLIMIT_NOFILE, &child.open_files);
  // The agent ignores SIGTTOU, and so do we until the next line: it would stop us here.
  if (child.foreground) ::tcsetpgrp(STDIN_FILENO, ::getpid());
  reset_signals(child);
  // Traced, the child stops when exec has loaded the program: a debugger then finds that program,
  // and not dlaunch. A container may forbid tracing: then the child stops before exec.
  if (child.stop_at_start && ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::raise(SIGSTOP);
  ::execve(child.path, child.argv, child.env);
  fail(child, Stage::exec);
  return 127;
}

std::vector<char*> c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const auto& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The path of a file of the worker's, from our own folder.
std::string seen_from_here(const std::string& path, const std::string& folder) {
  return path.starts_with("/") || folder.empty() ? path : folder + "/" + path;
}

// The interpreter in the "#!" line of a script; "" if it has none.
std::string interpreter_of(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[256] = "";
  const ssize_t n = fd ? ::read(fd.get(), text, sizeof text - 1) : -1;
  if (n < 3 || text[0] != '#' || text[1] != '!') return "";
  std::string line(text + 2, static_cast<std::size_t>(n - 2));
  line = line.substr(0, line.find('\n'));
  const auto from = line.find_first_not_of(" \t");
  if (from == std::string::npos) return "";
  return line.substr(from, line.find_first_of(" \t", from) - from);
}

bool begins_like_script(const std::string& path) {
  char text[2] = "";
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return fd && ::read(fd.get(), text, sizeof text) == 2 && text[0] == '#' && text[1] == '!';
}

std::string explain_exec(const SpawnRequest& request, int err) {
  const std::string what = "exec '" + request.argv[0] + "': ";
  const std::string path = seen_from_here(request.path, request.chdir);
  struct stat st {};
  const bool exists = ::stat(path.c_str(), &st) == 0;
  const auto interpreter = exists && S_ISREG(st.st_mode) ? interpreter_of(path) : "";
  if (err == ENOENT && exists) {
    if (interpreter.ends_with('\r'))
      return what + "its lines end as on Windows, with CR LF: convert it, as dos2unix does";
    if (!interpreter.empty() && interpreter[0] != '/')
      return what + "its interpreter '" + interpreter + "' is no path: write #!/usr/bin/env " +
             interpreter;
    if (!interpreter.empty()) return what + "its interpreter '" + interpreter + "' does not exist";
    return what + "the loader it needs does not exist; was it built for another system?";
  }
  if (err == EACCES && exists && S_ISDIR(st.st_mode)) return what + "it is a folder";
  if (err == EACCES && exists && ::access(path.c_str(), X_OK) == 0 && !interpreter.empty())
    return what + "its interpreter '" + interpreter + "' cannot be executed";
  if (err == EACCES && exists)
    return what + "permission denied: chmod +x it, or name its interpreter";
  if (err == ENOEXEC && begins_like_script(path))
    return what + "its first line, '#!', names no interpreter";
  if (err == ENOENT && ::lstat(path.c_str(), &st) == 0 && S_ISLNK(st.st_mode))
    return what + "it is a link to a file that does not exist";
  if (err == ENOEXEC)
    return what + "not a program: a script must begin with '#!' and its interpreter";
  return errno_error("exec '" + request.argv[0] + "'", err).what;
}

std::string explain_fork(int err) {
  std::string what = errno_error("start a process", err).what;
  if (err == EAGAIN) what += "; too many processes: see ulimit -u and the pids cgroup";
  return what;
}

std::string explain(const SpawnRequest& request, Stage stage, int err) {
  switch (stage) {
    case Stage::chdir:
      return errno_error("chdir to '" + request.chdir + "'", err).what;
    case Stage::exec:
      return explain_exec(request, err);
    case Stage::bind_cpu:
      return errno_error(
                 "bind to CPUs " + format_rank_set({request.cpus.begin(), request.cpus.end()}), err)
          .what;
    case Stage::stdio:
      return errno_error("connect stdin, stdout and stderr", err).what;
    default:
      return explain_fork(err);
  }
}

// One stack for all children: the parent sleeps while a child uses it.
char* child_stack() {
  static char* const stack = static_cast<char*>(
      ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
#if defined(__SANITIZE_ADDRESS__)
  // The last child never returned from its frames: the sanitizer still considers them alive.
  __asan_unpoison_memory_region(stack, kStackBytes);
#endif
  return stack;
}

// Waits until the child stands at the start of its program, and leaves it stopped, without a
// tracer. A child that ends before stays a zombie, for its pidfd to report.
void leave_stopped(pid_t pid) {
  const auto id = static_cast<id_t>(pid);
  siginfo_t info{};
  while (::waitid(P_PID, id, &info, WEXITED | WSTOPPED | WNOWAIT) != 0 && errno == EINTR) {
  }
  if (info.si_pid != pid || info.si_code != CLD_TRAPPED) return;
  ::waitid(P_PID, id, &info, WSTOPPED);
  ::ptrace(PTRACE_DETACH, pid, nullptr, reinterpret_cast<void*>(SIGSTOP));
}

// fork with a pidfd. Not fork(), because of its handlers: the child makes system calls only. Not
// clone3, because the seccomp filters of containers refuse it.
pid_t fork_child(Child& child, int& pidfd) {
  const long pid = ::syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, &pidfd, nullptr, nullptr);
  if (pid == 0) ::_exit(run_child(&child));
  return static_cast<pid_t>(pid);
}

}  // namespace

Result<Spawned> spawn_helper(SpawnRequest request) {
  ::getrlimit(RLIMIT_NOFILE, &request.open_files);
  Spawned spawned;
  const auto error = spawn(request, spawned);
  if (error.stage != Stage::none) return Error{.what = error.what, .os_errno = error.os_errno};
  return spawned;
}

SpawnError spawn(const SpawnRequest& request, Spawned& worker) {
  const auto argv = c_strings(request.argv);
  const auto env = c_strings(request.env);
  std::vector<cpu_set_t> cpus;
  if (!request.cpus.empty()) {
    cpus.resize(static_cast<std::size_t>(request.cpus.back()) / CPU_SETSIZE + 1);
    const std::size_t bytes = cpus.size() * sizeof(cpu_set_t);
    CPU_ZERO_S(bytes, cpus.data());
    for (const int cpu : request.cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, cpus.data());
  }
  Child child{.path = request.path.c_str(),
              .argv = argv.data(),
              .env = env.data(),
              .chdir = request.chdir.empty() ? nullptr : request.chdir.c_str(),
              .cpus = cpus.empty() ? nullptr : cpus.data(),
              .cpus_bytes = cpus.size() * sizeof(cpu_set_t),
              .stdio = {request.in, request.out, request.err},
              .inherited = request.inherited,
              .heartbeat = request.heartbeat,
              .heartbeat_as = request.heartbeat_as,
              .open_files = request.open_files,
              .ignore_hangup = request.ignore_hangup,
              .stop_at_start = request.stop_at_start,
              .foreground = request.foreground,
              .death_signal = request.death_signal,
              .parent = ::getpid(),
              .worker = request.worker,
              .failure_pipe = request.wait_for_exec ? -1 : request.failure_pipe,
              .failed_stage = Stage::none,
              .failed_errno = 0};
  // A signal handler must not run in the child while it has our memory.
  sigset_t all, old;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &old);
  int pidfd = -1;
  const pid_t pid = request.wait_for_exec
                        ? ::clone(run_child, child_stack() + kStackBytes,
                                  CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &child, &pidfd)
                        : fork_child(child, pidfd);
  const int clone_errno = errno;
  ::sigprocmask(SIG_SETMASK, &old, nullptr);
  if (pid < 0) return explain_failure(request, Stage::fork, clone_errno);
  worker.pid = pid;
  worker.pidfd.reset(pidfd);
  ::fcntl(pidfd, F_SETFD, FD_CLOEXEC);
  if (request.stop_at_start) leave_stopped(pid);
  if (child.failed_stage == Stage::none) return {};
  ::waitpid(pid, nullptr, 0);
  worker = {};
  return explain_failure(request, child.failed_stage, child.failed_errno);
}

SpawnError explain_failure(const SpawnRequest& request, Stage stage, int os_errno) {
  return {stage, os_errno, explain(request, stage, os_errno)};
}

SpawnError foresee_failure(const SpawnRequest& request) {
  struct stat st {};
  const std::string& folder = request.chdir;
  if (!folder.empty()) {
    int err = ::stat(folder.c_str(), &st) == 0 ? 0 : errno;
    if (err == 0 && !S_ISDIR(st.st_mode)) err = ENOTDIR;
    if (err == 0 && ::access(folder.c_str(), X_OK) != 0) err = errno;
    if (err != 0) return explain_failure(request, Stage::chdir, err);
  }
  const std::string path = seen_from_here(request.path, folder);
  int err = ::stat(path.c_str(), &st) == 0 ? 0 : errno;
  if (err == 0 && (!S_ISREG(st.st_mode) || ::access(path.c_str(), X_OK) != 0)) err = EACCES;
  return err == 0 ? SpawnError() : explain_failure(request, Stage::exec, err);
}

namespace {

bool is_script_name(const std::string& name) {
  return std::ranges::any_of(kScriptEndings,
                             [&](const char* ending) { return name.ends_with(ending); });
}

// A name of a file in the folder that is like this one.
std::string similar_file(const std::string& name, const std::string& folder) {
  constexpr std::size_t kMost = 1000;
  std::vector<std::string> names;
  std::error_code none;
  for (std::filesystem::directory_iterator it(folder, none), end;
       !none && it != end && names.size() < kMost; it.increment(none)) {
    names.push_back(it->path().filename().string());
  }
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  return did_you_mean(name, candidates);
}

// A script's name is a file name, which is not searched in PATH.
std::string why_not_found(const std::string& name, const std::string& folder) {
  const std::string here = seen_from_here(name, folder);
  struct stat st {};
  const bool exists = ::stat(here.c_str(), &st) == 0;
  if (exists && S_ISDIR(st.st_mode)) return "it is a folder, and no program in PATH is called so";
  if (exists) return "no such program in PATH; did you mean './" + name + "'?";
  if (!is_script_name(name)) return "no such program in PATH";
  const std::string where = folder.empty() ? "the working folder" : "'" + folder + "'";
  return "no such file in " + where + similar_file(name, folder.empty() ? "." : folder);
}

}  // namespace

Result<std::string> find_program(const std::string& name, const std::string& path_variable,
                                 const std::string& folder) {
  if (name.find('/') != std::string::npos) return name;  // exec itself reports the error
  int err = ENOENT;
  std::size_t from = 0;
  while (from <= path_variable.size()) {
    const auto to = std::min(path_variable.find(':', from), path_variable.size());
    const std::string entry = path_variable.substr(from, to - from);
    const std::string path = (entry.empty() ? "." : entry) + "/" + name;
    const std::string here = seen_from_here(path, folder);
    struct stat st {};
    if (::stat(here.c_str(), &st) == 0 && S_ISREG(st.st_mode)) {
      if (::access(here.c_str(), X_OK) == 0) return path;
      err = EACCES;
    }
    from = to + 1;
  }
  if (err == EACCES) return errno_error("exec '" + name + "'", EACCES);
  std::string what = "exec '" + name + "': " + why_not_found(name, folder);
  return Error{.code = Errc::not_found, .what = std::move(what), .os_errno = ENOENT};
}

}  // namespace dlaunch
