#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "base/clock.h"
#include "launcher/process/process_tree.h"
#include "tests/unit/temp_folder.h"

using namespace dlaunch;
namespace fs = std::filesystem;

namespace {

class Folder : public TempFolder {
 public:
  std::string file(const std::string& name, const std::string& text, mode_t mode) const {
    std::ofstream(path / name) << text;
    ::chmod((path / name).c_str(), mode);
    return path / name;
  }
};

// A request to run `script` in a shell, whose stdout is a pipe that output() reads to its end.
struct Shell {
  explicit Shell(const std::string& script) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
    request.path = "/bin/sh";
    request.argv = {"sh", "-c", script};
    request.env = {"PATH=/usr/bin:/bin", "MARK=here"};
    request.out = writing.get();
    ::getrlimit(RLIMIT_NOFILE, &request.open_files);
  }
  SpawnError start() { return spawn(request, worker); }
  std::string output() {
    writing.reset();
    std::string text;
    char bytes[4096];
    ssize_t n = 0;
    while ((n = ::read(reading.get(), bytes, sizeof bytes)) > 0) {
      text.append(bytes, static_cast<std::size_t>(n));
    }
    return text;
  }
  // The pidfd tells the end; its status is returned.
  siginfo_t end() const {
    pollfd waited{worker.pidfd.get(), POLLIN, 0};
    CHECK(::poll(&waited, 1, 30'000) == 1);
    siginfo_t info{};
    CHECK(::waitid(P_PID, static_cast<id_t>(worker.pid), &info, WEXITED) == 0);
    return info;
  }

  UniqueFd reading, writing;
  SpawnRequest request;
  Spawned worker;
};

SpawnRequest program(const std::string& path) {
  SpawnRequest request;
  request.path = path;
  request.argv = {path};
  ::getrlimit(RLIMIT_NOFILE, &request.open_files);
  return request;
}

SpawnError start(const SpawnRequest& request) {
  Spawned worker;
  const auto error = spawn(request, worker);
  if (error.stage == Stage::none) ::waitpid(worker.pid, nullptr, 0);
  return error;
}

}  // namespace

TEST_CASE(
    "a worker runs with its own environment, group, folder and limits, both ways of starting") {
  for (const bool wait_for_exec : {true, false}) {
    CAPTURE(wait_for_exec);
    const Folder folder;
    Shell shell("echo $MARK $PWD $(ulimit -n) $$ $(cut -d' ' -f5 /proc/$$/stat); exit 7");
    shell.request.wait_for_exec = wait_for_exec;
    shell.request.chdir = folder.path;
    shell.request.open_files.rlim_cur = 77;
    REQUIRE(shell.start().stage == Stage::none);
    const std::string pid = std::to_string(shell.worker.pid);
    CHECK(shell.output() == "here " + folder.path.string() + " 77 " + pid + " " + pid + "\n");
    const auto info = shell.end();
    CHECK(info.si_code == CLD_EXITED);
    CHECK(info.si_status == 7);
  }
}

TEST_CASE("a worker that stops at its start has its program loaded, and runs on a SIGCONT") {
  Shell shell("echo runs; exit 7");
  shell.request.wait_for_exec = false;
  shell.request.stop_at_start = true;
  REQUIRE(shell.start().stage == Stage::none);
  const auto proc = fs::path("/proc") / std::to_string(shell.worker.pid);
  const auto by = steady_now() + std::chrono::seconds(30);  // for a test that hangs
  while (state_of_process(shell.worker.pid) != ProcessState::stopped && steady_now() < by) {
    ::usleep(1000);
  }
  CHECK(state_of_process(shell.worker.pid) == ProcessState::stopped);
  CHECK(fs::read_symlink(proc / "exe") == fs::canonical("/bin/sh"));
  pollfd output{shell.reading.get(), POLLIN, 0};
  CHECK(::poll(&output, 1, 50) == 0);
  ::kill(shell.worker.pid, SIGCONT);
  CHECK(shell.output() == "runs\n");
  CHECK(shell.end().si_status == 7);
}

TEST_CASE("a worker that cannot run its program does not stop at its start") {
  SpawnRequest request = program("/no/such/program");
  request.wait_for_exec = false;
  request.stop_at_start = true;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  request.failure_pipe = writing.get();
  CHECK(start(request).stage == Stage::none);
  SpawnFailure failure{};
  CHECK(::read(reading.get(), &failure, sizeof failure) == sizeof failure);
  CHECK(failure.stage == Stage::exec);
}

TEST_CASE("a worker starts with nothing blocked, nothing ignored, and dies with its parent") {
  for (const bool wait_for_exec : {true, false}) {
    CAPTURE(wait_for_exec);
    auto* const old_pipe = ::signal(SIGPIPE, SIG_IGN);
    auto* const old_hangup = ::signal(SIGHUP, SIG_IGN);
    sigset_t some, old_mask;
    sigemptyset(&some);
    sigaddset(&some, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &some, &old_mask);
    Shell shell("grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\n'");
    shell.request.wait_for_exec = wait_for_exec;
    Shell under_nohup("grep -E '^SigIgn' /proc/self/status | tr -d '\\n'");
    under_nohup.request.ignore_hangup = true;
    CHECK(shell.start().stage == Stage::none);
    CHECK(under_nohup.start().stage == Stage::none);
    CHECK(shell.output() == "SigBlk:\t0000000000000000SigIgn:\t0000000000000000");
    CHECK(under_nohup.output() == "SigIgn:\t0000000000000001");
    shell.end();
    under_nohup.end();
    sigset_t now;
    ::sigprocmask(SIG_SETMASK, &old_mask, &now);
    CHECK(sigismember(&now, SIGTERM) == 1);  // ours is as it was
    ::signal(SIGPIPE, old_pipe);
    ::signal(SIGHUP, old_hangup);
  }
}

TEST_CASE(
    "only the three standard descriptors reach a worker, even where one stands in its place") {
  const UniqueFd secret(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::fcntl(0, F_SETFD, FD_CLOEXEC);  // as if it were a pipe of ours
  Shell shell("[ -e /proc/$$/fd/0 ] && [ -e /proc/$$/fd/2 ] && [ ! -e /proc/$$/fd/" +
              std::to_string(secret.get()) + " ] && echo good");
  REQUIRE(shell.start().stage == Stage::none);
  ::fcntl(0, F_SETFD, 0);
  CHECK(shell.output() == "good\n");
  shell.end();
}

TEST_CASE("a worker is bound to the CPUs it is given") {
  cpu_set_t ours;
  REQUIRE(::sched_getaffinity(0, sizeof ours, &ours) == 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &ours)) last = cpu;
  }
  Shell shell("grep ^Cpus_allowed_list /proc/self/status | cut -f2");
  shell.request.cpus = {last};
  REQUIRE(shell.start().stage == Stage::none);
  CHECK(shell.output() == std::to_string(last) + "\n");
  shell.end();

  auto request = program("/bin/true");
  request.cpus = {900, 901};
  const auto error = start(request);
  CHECK(error.stage == Stage::bind_cpu);
  CHECK(error.what.starts_with("bind to CPUs 900-901: "));
}

TEST_CASE("each failure to start is reported with its stage, errno and remedy") {
  const Folder folder;
  struct Case {
    std::string path;
    int os_errno;
    std::string words;
  };
  const Case cases[] = {
      {folder.path / "nosuch", ENOENT, "No such file"},
      {folder.file("plain", "x", 0644), EACCES, "chmod +x"},
      {folder.path, EACCES, "it is a folder"},
      {folder.file("text", "echo hi\n", 0755), ENOEXEC, "must begin with '#!'"},
      {folder.file("script", "#!/no/such/interpreter -x\n", 0755), ENOENT,
       "its interpreter '/no/such/interpreter' does not exist"},
      {folder.file("relative", "#!python3\n", 0755), ENOENT, "write #!/usr/bin/env python3"},
      {folder.file("nameless", "#!\necho hi\n", 0755), ENOEXEC, "names no interpreter"},
      {folder.file("closed", "#!" + (folder.path / "plain").string() + "\n", 0755), EACCES,
       "plain' cannot be executed"},
      {folder.file("windows", "#!/bin/sh\r\necho hi\r\n", 0755), ENOENT, "CR LF"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.path);
    const auto error = start(program(c.path));
    CHECK(error.stage == Stage::exec);
    CHECK(error.os_errno == c.os_errno);
    CHECK(error.what.find("exec '" + c.path + "': ") == 0);
    CHECK(error.what.find(c.words) != std::string::npos);
  }
  // A path is relative to the worker's folder.
  auto request = program("./script");
  request.chdir = folder.path;
  CHECK(start(request).what.find("its interpreter") != std::string::npos);

  request = program("/bin/true");
  request.chdir = folder.path / "gone";
  const auto error = start(request);
  CHECK(error.stage == Stage::chdir);
  CHECK(error.what == "chdir to '" + request.chdir + "': No such file or directory");
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // nobody is left to be reaped
}

TEST_CASE("a forked worker that cannot exec says so in the pipe and exits with 127") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  auto request = program("/no/such/program");
  request.wait_for_exec = false;
  request.failure_pipe = writing.get();
  request.worker = 5;
  Spawned worker;
  REQUIRE(spawn(request, worker).stage == Stage::none);
  int status = 0;
  CHECK(::waitpid(worker.pid, &status, 0) == worker.pid);
  CHECK(WEXITSTATUS(status) == 127);
  SpawnFailure failure{};
  REQUIRE(::read(reading.get(), &failure, sizeof failure) == sizeof failure);
  CHECK(failure.worker == 5);
  CHECK(failure.stage == Stage::exec);
  CHECK(failure.os_errno == ENOENT);
}

TEST_CASE("programs are found as execvp would") {
  CHECK(*find_program("./x", "/bin") == "./x");
  CHECK(find_program("sh", "/nowhere:/bin")->ends_with("/bin/sh"));
  CHECK_FALSE(find_program("no-such-program", "/bin:/usr/bin"));
  CHECK(find_program("passwd", "/etc").error().os_errno == EACCES);
  const Folder folder;
  folder.file("mine", "#!/bin/sh\n", 0755);
  CHECK(*find_program("mine", "/bin:.", folder.path) == "./mine");
  CHECK_FALSE(find_program("mine", "/bin:."));
  CHECK(find_program("mine", "/bin", folder.path).error().what.find("did you mean './mine'") !=
        std::string::npos);
}
