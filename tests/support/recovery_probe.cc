// An elastic program that records the times of its events, for script/bench-recovery.
//
//   recovery_probe EVENTS
//
// Steps together with the other ranks, with a pause of RECOVERY_STEP_US (1000) between two steps,
// and checks the sums, until the file EVENTS.stop is there. Holds RECOVERY_MEMORY_MB (0) of memory,
// which the kernel takes back from a dead process before it closes its sockets. Appends to EVENTS a
// line for each event, times in ns of CLOCK_MONOTONIC:
//
//   PID start TIME                        main() has begun
//   PID in TIME ROUND RANK SIZE           dl_init or dl_rejoin has returned
//   PID first TIME ROUND RANK SIZE        the first all_reduce of the round has returned
//   PID lost TIME ROUND RANK LAST_GOOD    a call has returned PeerLost; its last one went well then
//   PID wrong TIME ROUND RANK SIZE        a sum was wrong
//   PID end TIME ROUND RANK SIZE
//
// Without arguments it only prints the time at which main() has begun.
//
//   recovery_probe --bare TIMES
//
// Measures the machine's own share now: as often, it kills a process that only sleeps and holds an
// end of a socket, and prints after how many ns another process, asleep at the other end, runs.
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <dlaunch/ring.hpp>

namespace {

std::int64_t now_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * std::int64_t{1'000'000'000} + t.tv_nsec;
}

class Events {
 public:
  explicit Events(const std::string& file)
      : fd_(::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {}

  // One write each, so that lines of several processes do not mix.
  void tell(const char* what, std::int64_t time, const dl::Communicator* comm = nullptr,
            std::int64_t last = -1) {
    char line[200];
    int n = std::snprintf(line, sizeof line, "%d %s %lld", ::getpid(), what,
                          static_cast<long long>(time));
    if (comm != nullptr) {
      n += std::snprintf(line + n, sizeof line - n, " %llu %d %lld",
                         static_cast<unsigned long long>(comm->round()), comm->rank(),
                         static_cast<long long>(last < 0 ? comm->size() : last));
    }
    line[n++] = '\n';
    if (::write(fd_, line, static_cast<std::size_t>(n)) != n) std::abort();
  }

 private:
  const int fd_;
};

class Probe {
 public:
  Probe(const std::string& file, std::chrono::microseconds step, std::int64_t began)
      : events_(file), stop_(file + ".stop"), step_(step) {
    events_.tell("start", began);
    dl::Options options;
    options.elastic = 1;
    comm_ = dl::Communicator::init(nullptr, options);
  }

  // 0, or 1 after a wrong sum.
  int run() {
    while (true) {
      events_.tell("in", now_ns(), &comm_);
      try {
        come_together();
        while (step()) std::this_thread::sleep_for(step_);
        events_.tell(wrong_ ? "wrong" : "end", now_ns(), &comm_);
        return wrong_ ? 1 : 0;
      } catch (const dl::PeerLost&) {
        events_.tell("lost", now_ns(), &comm_, good_);
      }
      comm_.rejoin(static_cast<std::uint64_t>(done_));
    }
  }

 private:
  // A newcomer learns the others' progress.
  void come_together() {
    comm_.all_reduce(std::span<std::int64_t>(&done_, 1), dl::Op::max);
    good_ = now_ns();
    events_.tell("first", good_, &comm_);
  }

  // False: all know that it is time to stop, or that the sum is wrong.
  bool step() {
    const std::int64_t n = comm_.size();
    std::int64_t sums[] = {comm_.rank() + done_, ::access(stop_.c_str(), F_OK) == 0 ? 1 : 0};
    comm_.all_reduce(std::span<std::int64_t>(sums));
    good_ = now_ns();
    wrong_ = sums[0] != n * done_ + n * (n - 1) / 2;
    ++done_;
    return !wrong_ && sums[1] == 0;
  }

  Events events_;
  const std::string stop_;
  const std::chrono::microseconds step_;
  dl::Communicator comm_ = dl::Communicator::adopt(nullptr);
  std::int64_t done_ = 0, good_ = 0;
  bool wrong_ = false;
};

// -- The machine alone

// Stores at `woke` the time when the other end of the socket closes.
[[noreturn]] void watch_end(int socket, std::atomic<std::int64_t>& woke) {
  const int epoll = ::epoll_create1(0);
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) != 0) ::_exit(1);
  const bool seen = ::epoll_wait(epoll, &event, 1, -1) == 1;
  woke = now_ns();
  ::_exit(seen ? 0 : 1);
}

// -1: something failed.
std::int64_t kill_bare_process(std::atomic<std::int64_t>& woke) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  const pid_t victim = ::fork();
  if (victim == 0) {
    ::close(ends[1]);
    while (true) ::pause();
  }
  const pid_t watcher = ::fork();
  if (watcher == 0) {
    ::close(ends[0]);
    watch_end(ends[1], woke);
  }
  ::close(ends[0]);
  ::close(ends[1]);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // both are asleep, most likely
  const std::int64_t killed = now_ns();
  ::kill(victim, SIGKILL);
  int status = 1;
  ::waitpid(watcher, &status, 0);
  ::waitpid(victim, nullptr, 0);
  return status == 0 ? woke - killed : -1;
}

int kill_bare_processes(int times) {
  void* memory = ::mmap(nullptr, sizeof(std::atomic<std::int64_t>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto& woke = *new (memory) std::atomic<std::int64_t>;
  for (int i = 0; i < times; ++i) {
    const std::int64_t took = kill_bare_process(woke);
    if (took < 0) return 1;
    std::printf("%lld\n", static_cast<long long>(took));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::int64_t began = now_ns();
  if (argc < 2) {
    std::printf("%lld\n", static_cast<long long>(began));
    return 0;
  }
  if (argc == 3 && std::string(argv[1]) == "--bare") return kill_bare_processes(std::atoi(argv[2]));
  const auto setting = [](const char* name, int usual) {
    const char* const value = std::getenv(name);
    return value != nullptr ? std::atoi(value) : usual;
  };
  const std::vector<char> memory(static_cast<std::size_t>(setting("RECOVERY_MEMORY_MB", 0)) << 20,
                                 1);
  return Probe(argv[1], std::chrono::microseconds(setting("RECOVERY_STEP_US", 1000)), began).run();
} catch (const dl::Error& error) {
  std::fprintf(stderr, "recovery_probe: %s\n", error.what());
  return 1;
}
