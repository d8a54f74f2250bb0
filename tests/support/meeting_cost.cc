// Measures what it costs ranks to meet: forks them on this host, lets all begin at the same moment,
// and prints the time until the last has joined and until the last has a first all_reduce, the CPU
// time of all, and the descriptors and memory of one rank. --deaths: then so many ranks are killed
// at the same moment, and it prints when the last of the others has the error that names one of
// them. Exits with 1 if a limit is exceeded or an error is wrong.
//
//   meeting_cost RANKS [--transport auto|shm|tcp] [--deaths N] [--most-s X] [--most-descriptors N]
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "dlaunch/ring.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int ranks = 0;
  const char* transport = "auto";
  double most_s = 0;  // 0: no limit
  long most_descriptors = 0;
  int deaths = 0;
  // They are spread over the ranks. Rank 0 serves the store.
  bool dies(int rank) const {
    return deaths > 0 && rank % (ranks / deaths) == 1 && rank / (ranks / deaths) < deaths;
  }
};

// What a rank reports once it has its result.
struct Report {
  double joined_s = 0, reduced_s = 0, lost_s = 0;
  long descriptors = 0, kib = 0;
};

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    read = ends[0];
    write = ends[1];
  }
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

long descriptors() {
  DIR* const all = ::opendir("/proc/self/fd");
  long count = -3;  // ".", ".." and this folder
  while (all != nullptr && ::readdir(all) != nullptr) ++count;
  if (all != nullptr) ::closedir(all);
  return count;
}

[[noreturn]] void refuse(const char* why) {
  std::fprintf(stderr, "meeting_cost: %s\n", why);
  std::exit(64);
}

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (!word.starts_with("--")) {
      options.ranks = std::atoi(words[i]);
      continue;
    }
    if (i + 1 == count) refuse("an option needs a value");
    const char* const value = words[++i];
    if (word == "--transport") {
      options.transport = value;
    } else if (word == "--most-s") {
      options.most_s = std::atof(value);
    } else if (word == "--deaths") {
      options.deaths = std::atoi(value);
    } else if (word == "--most-descriptors") {
      options.most_descriptors = std::atol(value);
    } else {
      refuse("an option is unknown");
    }
  }
  if (options.ranks < 2) refuse("say how many ranks: 2 or more");
  if (options.deaths > options.ranks / 2) refuse("at most every second rank dies");
  return options;
}

// A port that stays this process's until its end, and on which rank 0 may listen.
int held_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, any, size) != 0 || ::getsockname(fd, any, &size) != 0) refuse("no free port");
  return ntohs(address.sin_port);
}

// Some ranks die. The others report how long their barrier took to fail.
int see_deaths(const Options& options, int rank, dl_comm* comm, int report_to) {
  if (options.dies(rank)) ::raise(SIGKILL);
  const auto begin = Clock::now();
  const dl_result result = dl_barrier(comm);
  Report report;
  report.lost_s = seconds_since(begin);
  if (result != DL_ERR_PEER_LOST || !options.dies(dl_peer_lost(comm))) {
    std::fprintf(stderr, "rank %d: barrier after the deaths: %s\n", rank, dl_last_error(comm));
    return 5;
  }
  if (::write(report_to, &report, sizeof report) != sizeof report) return 4;
  dl_finalize(comm);
  return 0;
}

// A rank: joins when the gate opens, reports, and leaves when the second gate opens.
int run_rank(const Options& options, int rank, int port, const char* secret, const Pipe& gate,
             const Pipe& leave, int report_to) {
  char byte;
  ::close(gate.write);
  ::close(leave.write);
  (void)!::read(gate.read, &byte, 1);
  const auto begin = Clock::now();
  dl_options given;
  dl_options_init(&given);
  given.rank = rank;
  given.size = options.ranks;
  given.transport = options.transport;
  given.secret_file = secret;
  dl_comm* comm = nullptr;
  const std::string url = "tcp://127.0.0.1:" + std::to_string(port);
  Report report;
  if (dl_init(url.c_str(), &given, &comm) != DL_OK) {
    std::fprintf(stderr, "rank %d: %s\n", rank, dl_last_error(nullptr));
    return 2;
  }
  report.joined_s = seconds_since(begin);
  int sum = 1;
  if (dl_all_reduce(comm, &sum, &sum, 1, DL_INT32, DL_SUM) != DL_OK || sum != options.ranks) {
    std::fprintf(stderr, "rank %d: sum %d: %s\n", rank, sum, dl_last_error(comm));
    return 3;
  }
  report.reduced_s = seconds_since(begin);
  report.descriptors = descriptors();
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  report.kib = used.ru_maxrss;
  if (::write(report_to, &report, sizeof report) != sizeof report) return 4;
  (void)!::read(leave.read, &byte, 1);
  if (options.deaths > 0) return see_deaths(options, rank, comm, report_to);
  dl_finalize(comm);
  return 0;
}

bool within(const char* what, double value, double most) {
  if (most <= 0 || value <= most) return true;
  std::fprintf(stderr, "%s: %g is more than %g\n", what, value, most);
  return false;
}

}  // namespace

int main(int count, char** words) {
  const Options options = parse(count, words);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  char secret[] = "/tmp/meeting_cost.XXXXXX";
  const int secret_fd = ::mkstemp(secret);
  if (secret_fd < 0 || ::write(secret_fd, "0123456789abcdef", 16) != 16) refuse("no secret");
  const int port = held_port();
  const Pipe gate, leave, reports;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) refuse("fork fails");
    if (pid == 0) {
      ::close(reports.read);
      ::_exit(run_rank(options, rank, port, secret, gate, leave, reports.write));
    }
    pids.push_back(pid);
  }
  ::close(reports.write);
  ::close(gate.write);  // all begin
  Report most;
  bool well = true;
  for (int rank = 0; rank < options.ranks && well; ++rank) {
    Report one;
    well = ::read(reports.read, &one, sizeof one) == sizeof one;
    most.joined_s = std::max(most.joined_s, one.joined_s);
    most.reduced_s = std::max(most.reduced_s, one.reduced_s);
    most.descriptors = std::max(most.descriptors, one.descriptors);
    most.kib = std::max(most.kib, one.kib);
  }
  ::close(leave.write);
  for (int i = options.deaths; options.deaths > 0 && i < options.ranks && well; ++i) {
    Report one;
    well = ::read(reports.read, &one, sizeof one) == sizeof one;
    most.lost_s = std::max(most.lost_s, one.lost_s);
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    int status = 0;
    const pid_t pid = pids[static_cast<std::size_t>(rank)];
    well &= ::waitpid(pid, &status, 0) == pid && status == (options.dies(rank) ? SIGKILL : 0);
  }
  ::unlink(secret);
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  std::printf(
      "%d ranks, %s: joined in %.2f s, first all_reduce after %.2f s; CPU %.2f s (system %.2f); "
      "descriptors of a rank %ld, its memory %ld MiB",
      options.ranks, options.transport, most.joined_s, most.reduced_s,
      seconds(used.ru_utime) + seconds(used.ru_stime), seconds(used.ru_stime), most.descriptors,
      most.kib >> 10);
  if (options.deaths > 0) {
    std::printf("; %d killed at once, all others know it after %.3f s", options.deaths,
                most.lost_s);
  }
  std::printf("\n");
  well &= within("seconds", most.reduced_s, options.most_s);
  well &= within("descriptors", static_cast<double>(most.descriptors),
                 static_cast<double>(options.most_descriptors));
  return well ? 0 : 1;
}
