// Kills one rank with SIGKILL in the middle of a large all_reduce, over and over, and measures the
// time until each survivor's call returns the error that names it.
// usage: kill_rank RANKS TRANSPORT TRIALS MEDIAN_MS MAX_MS     fails above these
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlaunch/ring.h>

namespace {

constexpr std::size_t kCount = 16 << 20;  // 64 MB of float
constexpr int kMaxRanks = 16;

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// Shared by the processes of one trial.
struct Shared {
  std::atomic<int> inside{0};  // ranks that have done two rounds and are in a third
  std::atomic<double> returned[kMaxRanks];
  std::atomic<int> verdict[kMaxRanks];  // 1: the error named the victim; 2: it did not
};

int be_rank(int rank, int ranks, int victim, const char* transport, const std::string& url,
            Shared& shared) {
  dl_options options;
  dl_options_init(&options);
  options.rank = rank;
  options.size = ranks;
  options.transport = transport;
  dl_comm* comm = nullptr;
  if (dl_init(url.c_str(), &options, &comm) != DL_OK) {
    std::fprintf(stderr, "rank %d: %s\n", rank, dl_last_error(nullptr));
    return 1;
  }
  std::vector<float> x(kCount, 1.0f);
  for (int i = 0;; ++i) {
    if (i == 2) ++shared.inside;
    const dl_result result = dl_all_reduce(comm, x.data(), x.data(), kCount, DL_FLOAT32, DL_MAX);
    if (result == DL_OK) continue;
    shared.returned[rank] = now_ms();
    const bool named = result == DL_ERR_PEER_LOST && dl_peer_lost(comm) == victim;
    if (!named) std::fprintf(stderr, "rank %d: %s\n", rank, dl_last_error(comm));
    shared.verdict[rank] = named ? 1 : 2;
    return 0;
  }
}

// Adds the survivors' latencies; false if a survivor got a wrong error.
bool trial(int ranks, const char* transport, int number, std::vector<double>& latencies) {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared;
  char folder[] = "/tmp/dl-kill-rank-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return false;
  const int victim = number % ranks;
  std::vector<pid_t> pids;
  for (int r = 0; r < ranks; ++r) {
    pids.push_back(::fork());
    if (pids.back() == 0) {
      ::_exit(be_rank(r, ranks, victim, transport, std::string("file://") + folder, shared));
    }
  }
  while (shared.inside < ranks) ::usleep(200);
  ::usleep(static_cast<useconds_t>(number * 997 % 20000));  // somewhere in the operation
  const double killed = now_ms();
  ::kill(pids[static_cast<std::size_t>(victim)], SIGKILL);
  for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  bool good = true;
  for (int r = 0; r < ranks; ++r) {
    if (r == victim) continue;
    good = good && shared.verdict[r] == 1;
    latencies.push_back(shared.returned[r] - killed);
  }
  ::munmap(memory, sizeof(Shared));
  const std::string remove = std::string(folder) + "/dlaunch-store-default";
  ::unlink(remove.c_str());
  ::rmdir(folder);
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 64;
  const int ranks = std::atoi(argv[1]), trials = std::atoi(argv[3]);
  if (ranks < 2 || ranks > kMaxRanks || trials < 1) return 64;
  std::vector<double> latencies;
  int bad = 0;
  for (int i = 0; i < trials; ++i) bad += !trial(ranks, argv[2], i, latencies);
  std::sort(latencies.begin(), latencies.end());
  const double median = latencies[latencies.size() / 2], most = latencies.back();
  std::printf("%s, %d ranks, %d trials: median %.2f ms, max %.2f ms, %d trials wrong\n", argv[2],
              ranks, trials, median, most, bad);
  return bad == 0 && median < std::atof(argv[4]) && most < std::atof(argv[5]) ? 0 : 1;
}
