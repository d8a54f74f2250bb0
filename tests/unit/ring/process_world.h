// Processes as ranks. The test forks them, and they join through the C API.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <dlaunch/ring.hpp>
#include <doctest/doctest.h>

#include "base/rank_set.h"
#include "base/unique_fd.h"
#include "tests/unit/safe_fork.h"
#include "tests/unit/temp_folder.h"

// For code of a rank, with `rank` and `comm`: a failed expectation is printed, and ends it with 1.
#define EXPECT(condition)                                                                        \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      std::fprintf(stderr, "rank %d, line %d: %s; last error: %s\n", rank, __LINE__, #condition, \
                   dl_last_error(comm));                                                         \
      return 1;                                                                                  \
    }                                                                                            \
  } while (false)

namespace dlaunch {

// Holds processes until another one lets them through.
class Gate {
 public:
  void open(int processes = 1) { ::eventfd_write(fd_.get(), static_cast<eventfd_t>(processes)); }
  void pass(int times = 1) {
    eventfd_t one;
    while (times-- > 0) ::eventfd_read(fd_.get(), &one);
  }

 private:
  UniqueFd fd_{::eventfd(0, EFD_SEMAPHORE)};
};

// Those that fail together end together: the end of one is news, too, and may come to the others
// before why their call has failed. Each comes once; again only after they have met at another one.
template <int kRanks>
class Together {
 public:
  void come(int rank) {
    gates_[rank].open(kRanks);
    for (Gate& gate : gates_) gate.pass();
  }

 private:
  Gate gates_[kRanks];
};

// The code of the error that the call throws; DL_OK: it throws none.
template <class Call>
dl_result code_of(Call call) {
  try {
    call();
  } catch (const dl::Error& error) {
    return error.code();
  }
  return DL_OK;
}

struct World {
  int ranks;
  const char* transport = "auto";
  double init_timeout_s = 30;
  double op_timeout_s = 30;
  bool tls = false;
  int cores = 0;  // DLAUNCH_LOCAL_CORES of the ranks; 0: not set
};

inline dl_result join(const std::string& url, const World& world, int rank, dl_comm*& comm) {
  dl_options options;
  dl_options_init(&options);
  options.rank = rank;
  options.size = world.ranks;
  options.transport = world.transport;
  options.init_timeout_s = world.init_timeout_s;
  options.op_timeout_s = world.op_timeout_s;
  if (world.cores > 0) ::setenv("DLAUNCH_LOCAL_CORES", std::to_string(world.cores).c_str(), 1);
  const std::string secret = std::filesystem::path(url.substr(7)) / "secret";
  if (world.tls) {
    ::setenv("DLAUNCH_TLS", "1", 1);
    options.secret_file = secret.c_str();
  }
  return dl_init(url.c_str(), &options, &comm);
}

inline pid_t start(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = safe_fork();
  if (pid == 0) ::_exit(body());
  return pid;
}

// The exit code, or 128 and the signal.
inline int end_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

using Body = std::function<int(int rank, dl_comm*& comm)>;

// Waits until the first thread of a process sleeps, as in a call that waits.
inline bool falls_asleep(pid_t pid) {
  const std::string path =
      "/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/stat";
  for (int ms = 0; ms < 20'000; ++ms) {
    char text[512] = {};
    const UniqueFd stat(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (::read(stat.get(), text, sizeof text - 1) <= 0) return false;
    const std::string_view fields(text);  // the name is in parentheses
    if (fields.substr(fields.rfind(')')).starts_with(") S")) return true;
    ::usleep(1000);
  }
  return false;
}

// A process that joins, runs body and leaves in good order. A failed dl_init is 100 + its code.
inline pid_t start_rank(const std::string& url, const World& world, int rank, const Body& body) {
  return start([&] {
    dl_comm* comm = nullptr;
    const dl_result joined = join(url, world, rank, comm);
    const int code = joined == DL_OK ? body(rank, comm) : 100 + joined;
    dl_finalize(comm);
    return code;
  });
}

// Runs body in one process a rank, but for `absent`, which never comes.
inline std::vector<int> run(const World& world, const Body& body, int absent = -1) {
  const TempFolder folder;
  if (world.tls) {
    const UniqueFd secret(::open((folder.path / "secret").c_str(), O_CREAT | O_WRONLY, 0600));
    CHECK(::write(secret.get(), "0123456789abcdef", 16) == 16);
  }
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world.ranks; ++rank) {
    if (rank != absent) pids.push_back(start_rank(folder.url(), world, rank, body));
  }
  std::vector<int> codes;
  for (const pid_t pid : pids) codes.push_back(end_of(pid));
  return codes;
}

inline void all_well(const World& world, const Body& body) {
  CAPTURE(world.transport);
  CHECK(run(world, body) == std::vector<int>(static_cast<std::size_t>(world.ranks), 0));
}

// The error of a time-out names this rank among those that the call waits for: "waiting for rank
// 1-2 (no answer), 4 (not in this call); arrived: 0,3". On a busy machine the error also names
// ranks that are late, or do not answer within a second.
inline bool waits_for(std::string_view told, int rank) {
  constexpr std::string_view kBefore = "waiting for rank ";
  const auto at = told.find(kBefore);
  if (at == told.npos) return false;
  told.remove_prefix(at + kBefore.size());
  told = told.substr(0, told.find(';'));
  while (true) {
    const auto ranks = parse_rank_set(told.substr(0, told.find(" (")));
    if (ranks && ranks->contains(rank)) return true;
    const auto end = told.find("), ");
    if (end == told.npos) return false;
    told.remove_prefix(end + 3);
  }
}

inline constexpr const char* kTransports[] = {"shm", "tcp"};

}  // namespace dlaunch
