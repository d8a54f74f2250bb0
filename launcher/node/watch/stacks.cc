#include "launcher/node/watch/stacks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string_view>

#include <asio/buffer.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <fmt/format.h>

#include "base/result.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/write_all.h"
#include "launcher/node/watch/native_stacks.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/spawn.h"
#include "launcher/wire/stack_lines.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxStacksText = 1 << 20;
constexpr std::size_t kMostBelow = 8;  // processes
constexpr char kComplete = '\0';       // the last byte the child writes

// -- In the child, whose stdout is the pipe

void emit(std::string_view line) {
  const std::string whole = std::string(line) + "\n";
  if (write_all(STDOUT_FILENO, whole).os_errno != 0) ::_exit(1);
}

// A line "KEY:\tVALUE" of /proc/PID/status.
std::string status_of(pid_t pid, const std::string& key) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":\t")) return line.substr(key.size() + 2);
  }
  return "";
}

bool runs_python(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(file, line);) {
    const std::string name = line.substr(line.rfind('/') + 1);
    if (line.find('/') != std::string::npos &&
        (name.starts_with("python") || name.starts_with("libpython"))) {
      return true;
    }
  }
  return false;
}

// In our PATH, in that of the process, or beside its Python, as in a virtual environment that is
// not activated.
Result<std::string> find_py_spy(pid_t pid) {
  const char* own = ::getenv("PATH");
  std::string folders = own != nullptr ? own : "";
  folders += ":" + environment_of(pid, "PATH").value_or("");
  std::ifstream words(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  std::string command;
  std::getline(words, command, '\0');
  if (command.starts_with('/')) folders += ":" + command.substr(0, command.rfind('/'));
  return find_program("py-spy", folders);
}

// False: it has printed the reason.
bool py_spy(const std::string& program, pid_t pid, bool stopped) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string number = std::to_string(pid);
    // Without it py-spy would stop the process itself and then continue it; this one is stopped
    // already.
    const char* const nonblocking = stopped ? "--nonblocking" : nullptr;
    ::execl(program.c_str(), "py-spy", "dump", "--pid", number.c_str(), nonblocking, nullptr);
    ::_exit(127);
  }
  int status = 1;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void look(pid_t pid) {
  const std::string tracer = status_of(pid, "TracerPid");
  if (tracer.empty()) return emit("there is no process " + std::to_string(pid));
  if (tracer != "0") {
    return emit(fmt::format("not looked at: {} (pid {}) is tracing it",
                            status_of(std::atoi(tracer.c_str()), "Name"), tracer));
  }
  const bool stopped = status_of(pid, "State").starts_with("T");
  if (stopped) emit(kStoppedLine);
  if (runs_python(pid)) {
    const auto program = find_py_spy(pid);
    if (program && py_spy(*program, pid, stopped)) return;
    if (!program) emit("a Python program: 'pip install py-spy' shows its Python stacks here");
  }
  native_stacks(pid, emit);
}

// The process may wait for one below it, as a shell does, or a program for a loader of data.
void look_at_all(pid_t pid) {
  look(pid);
  std::vector<pid_t> below = descendants_of(pid);
  std::erase(below, ::getpid());
  for (std::size_t i = 0; i < below.size(); ++i) {
    if (i == kMostBelow) return emit(fmt::format("{} more processes below it", below.size() - i));
    emit(fmt::format("below it {} (pid {}):", name_of_process(below[i]), below[i]));
    look(below[i]);
  }
}

[[noreturn]] void be_child(pid_t pid, int pipe, pid_t parent) {
  ::signal(SIGCHLD, SIG_DFL);  // the loop's handler writes to a descriptor of the parent's
  ::signal(SIGPIPE, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(pipe, STDOUT_FILENO);
  ::dup2(pipe, STDERR_FILENO);
  // Closes workers' pipes and the lock of the job's folder: we must not keep them open.
  ::syscall(SYS_close_range, 3U, ~0U, 0U);
  look_at_all(pid);
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, &kComplete, 1);
  ::_exit(0);
}

// -- In the parent

class Dump : public std::enable_shared_from_this<Dump> {
 public:
  using Done = std::function<void(std::vector<std::string>)>;
  Dump(asio::io_context& loop, Done done)
      : pipe_(loop), child_(loop), limit_(loop), done_(std::move(done)) {}

  Result<void> start(pid_t pid, Duration limit) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe", errno);
    UniqueFd reading(ends[0]), writing(ends[1]);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) be_child(pid, writing.get(), parent);
    if (child < 0) return errno_error("start a process", errno);
    // Nothing reaps it before we are back in the loop.
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
    asio::error_code ec;
    child_.assign(pidfd, ec);
    pipe_.assign(reading.release(), ec);
    limit_.expires_after(limit);
    limit_.async_wait([self = shared_from_this()](asio::error_code error) {
      if (!error) self->give_up();
    });
    read();
    return {};
  }

 private:
  void read() {
    pipe_.async_read_some(asio::buffer(bytes_),
                          [self = shared_from_this()](asio::error_code ec, std::size_t n) {
                            self->text_.append(self->bytes_.data(), n);
                            if (!ec && self->text_.size() < kMaxStacksText) return self->read();
                            self->reap();
                          });
  }

  void give_up() {
    gave_up_ = true;
    ::syscall(SYS_pidfd_send_signal, child_.native_handle(), SIGKILL, nullptr, 0);
  }

  void reap() {
    asio::error_code ignored;
    pipe_.close(ignored);
    child_.async_wait(asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](asio::error_code) { self->finish(); });
  }

  void finish() {
    siginfo_t info{};
    // The code that reaps all orphans may have been first.
    ::waitid(P_PIDFD, static_cast<id_t>(child_.native_handle()), &info, WEXITED | WNOHANG);
    limit_.cancel();
    done_(lines());
  }

  std::vector<std::string> lines() const {
    std::vector<std::string> out;
    const bool complete = text_.ends_with(kComplete);
    const std::string_view text(text_.data(), text_.size() - (complete ? 1 : 0));
    for (const auto line : split_words(text, '\n')) out.push_back(escaped(line));
    if (gave_up_ && !complete) {
      out.emplace_back("this took too long, and dlaunch stopped it");
    } else if (!complete) {
      out.emplace_back("here it broke off");
    }
    return out;
  }

  asio::posix::stream_descriptor pipe_, child_;
  asio::steady_timer limit_;
  const Done done_;
  std::array<char, 16384> bytes_{};
  std::string text_;
  bool gave_up_ = false;
};

}  // namespace

void dump_stacks(asio::io_context& loop, pid_t pid,
                 std::function<void(std::vector<std::string>)> done, Duration limit) {
  const auto dump = std::make_shared<Dump>(loop, done);
  if (auto started = dump->start(pid, limit); !started) {
    asio::post(loop, [done = std::move(done), what = started.error().what] {
      done({"not looked at: " + what});
    });
  }
}

}  // namespace dlaunch
