// Does something to one of the ranks of a random program, over and over: kills it, makes it call
// dl_abort(), stops it for good, or for up to a second. The others must all be told, in time, who
// was lost, and nobody of a rank that was only slow; no result may be wrong meanwhile.
// usage: random_faults [--trials N] [--seed N] [--fault kill|abort|stop|pause] [--ranks N]
//                      [--transport shm|tcp] [--groups PERMILLE] [--tell]
// The ranks meet in the current folder. What is not given varies from trial to trial. --tell shows
// what each rank was told.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "random_run.h"

namespace {

using namespace random_ops;

constexpr int kMaxRanks = 16;
constexpr double kStopTimeout = 0.6, kOtherTimeout = 10;  // of operations
constexpr double kMayLastLonger = 2;
constexpr double kPausedProgram = 0.25;  // its length, without the pause

enum class Fault { kill, abort, stop, pause };
constexpr const char* kFaults[] = {"kill", "abort", "stop", "pause"};

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

struct Trial {
  std::uint64_t seed;
  Fault fault;
  int ranks, victim;
  const char* transport;
  int groups_permille;
  double delay, pause;
  double op_timeout() const { return fault == Fault::stop ? kStopTimeout : kOtherTimeout; }
  std::string text() const {
    return "random_faults --trials 1 --seed " + std::to_string(seed) + " --fault " +
           kFaults[static_cast<int>(fault)] + " --ranks " + std::to_string(ranks) +
           " --transport " + transport + " --groups " + std::to_string(groups_permille);
  }
};

// Between the processes of one trial.
struct Shared {
  std::atomic<int> inside{0};  // ranks that have joined
  std::atomic<bool> abort_now{false};
  struct Rank {
    std::atomic<double> told{0};  // when it had its first error
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> operations{0}, wrong{0};
    dl_result result;
    int lost;
    bool victim_in_group;
    char text[400];
  } ranks[kMaxRanks];
};

class AbortsOnRequest {
 public:
  AbortsOnRequest(dl_comm* world, Shared& shared)
      : thread_([this, world, &shared] {
          while (!stop_ && !shared.abort_now) ::usleep(200);
          if (shared.abort_now) dl_abort(world);
        }) {}
  ~AbortsOnRequest() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

bool join(const Trial& trial, int rank, const std::string& url, dl_comm*& world) {
  dl_options options;
  dl_options_init(&options);
  options.rank = rank;
  options.size = trial.ranks;
  options.transport = trial.transport;
  options.op_timeout_s = trial.op_timeout();
  options.init_timeout_s = kOtherTimeout;
  if (dl_init(url.c_str(), &options, &world) == DL_OK) return true;
  std::fprintf(stderr, "rank %d: %s\n", rank, dl_last_error(nullptr));
  return false;
}

int be_rank(const Trial& trial, int rank, const std::string& url, Shared& shared) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  dl_comm* world = nullptr;
  if (!join(trial, rank, url, world)) return 1;
  auto& own = shared.ranks[rank];
  const Shape shape{.seed = trial.seed,
                    .ranks = trial.ranks,
                    .max_bytes = 2 << 20,
                    .groups_permille = trial.groups_permille};
  Limits limits;
  if (trial.fault == Fault::pause) limits.seconds = kPausedProgram;
  {
    Run run(world, shape, limits, [rank](const std::string& what) {
      std::fprintf(stderr, "WRONG on rank %d: %s\n", rank, what.c_str());
    });
    run.on_failure = [&](const Outcome& outcome) {
      const auto& members = run.members(outcome.group);
      own.result = outcome.result;
      own.lost = outcome.lost;
      own.victim_in_group =
          std::find(members.begin(), members.end(), trial.victim) != members.end();
      std::snprintf(own.text, sizeof own.text, "%s", outcome.text.c_str());
      own.told = now();
    };
    ++shared.inside;
    {
      std::optional<AbortsOnRequest> aborts;
      if (rank == trial.victim) aborts.emplace(world, shared);
      run.run();
    }
    own.operations = run.operations.load();
    own.wrong = run.wrong.load();
  }
  dl_finalize(world);
  own.over = true;
  return 0;
}

struct Totals {
  int trials = 0, bad = 0;
  std::uint64_t operations = 0, wrong = 0;
  double latest = 0;                 // told of a kill or abort
  int directly = 0, indirectly = 0;  // told the name of the victim; of a rank that left after it
};

class Judge {
 public:
  Judge(const Trial& trial, Shared& shared, double struck, bool tell)
      : trial_(trial), shared_(shared), struck_(struck), tell_(tell) {}

  bool good(Totals& totals) {
    for (int r = 0; r < trial_.ranks; ++r) {
      const auto& rank = shared_.ranks[r];
      totals.operations += rank.operations;
      totals.wrong += rank.wrong;
      if (r == trial_.victim && trial_.fault != Fault::pause && trial_.fault != Fault::abort) {
        continue;
      }
      if (tell_ && rank.told > 0) complain(r, "was told");
      if (rank.wrong > 0) bad(r, "had wrong results");
      if (!rank.over) {
        bad(r, "hangs");
      } else if (trial_.fault == Fault::pause) {
        if (rank.told > 0) bad(r, "failed because of a pause");
      } else if (rank.told == 0) {
        bad(r, "has not noticed");
      } else if (r != trial_.victim) {
        judge_survivor(r, totals);
      }
    }
    return good_;
  }

 private:
  void judge_survivor(int r, Totals& totals) {
    const auto& rank = shared_.ranks[r];
    const double late = rank.told - struck_;
    const bool by_timeout = trial_.fault == Fault::stop;
    if (late > (by_timeout ? kStopTimeout : 0) + kMayLastLonger) bad(r, "was told late");
    if (!by_timeout) totals.latest = std::max(totals.latest, late);
    if (by_timeout && rank.result == DL_ERR_TIMEOUT) {
      // A rank that stops while it holds the lock of the file store is nobody by name.
      const bool named = std::strstr(rank.text, "rank") != nullptr ||
                         std::strstr(rank.text, "holds the lock") != nullptr;
      if (!named) bad(r, "was told no rank");
      return;
    }
    if (rank.result != DL_ERR_PEER_LOST) return bad(r, "had an error of another kind");
    if (rank.lost == trial_.victim) {
      ++totals.directly;
      return;
    }
    ++totals.indirectly;
    if (rank.lost < 0) return bad(r, "was told of no rank");
    const double left = shared_.ranks[rank.lost].told;
    if (left == 0 || left > rank.told) bad(r, "was told of a rank that was there");
  }
  void bad(int r, const char* how) {
    good_ = false;
    complain(r, how);
  }
  void complain(int r, const char* how) {
    const auto& rank = shared_.ranks[r];
    std::fprintf(stderr, "%s\n  victim %d, rank %d %s", trial_.text().c_str(), trial_.victim, r,
                 how);
    if (rank.told > 0) {
      std::fprintf(stderr, ": %.3f s after, %s, lost %d: %s", rank.told - struck_,
                   dl_result_name(rank.result), rank.lost, rank.text);
    }
    std::fprintf(stderr, "\n");
  }

  const Trial& trial_;
  Shared& shared_;
  const double struck_;
  const bool tell_;
  bool good_ = true;
};

void strike(const Trial& trial, pid_t victim, Shared& shared) {
  switch (trial.fault) {
    case Fault::kill:
      ::kill(victim, SIGKILL);
      break;
    case Fault::abort:
      shared.abort_now = true;
      break;
    case Fault::stop:
      ::kill(victim, SIGSTOP);
      break;
    case Fault::pause:
      ::kill(victim, SIGSTOP);
      ::usleep(static_cast<useconds_t>(trial.pause * 1e6));
      ::kill(victim, SIGCONT);
      break;
  }
}

// Until all that should end have ended, or should have.
void await_ranks(const Trial& trial, Shared& shared) {
  const bool victim_ends = trial.fault == Fault::abort || trial.fault == Fault::pause;
  const double end = now() + trial.op_timeout() + kMayLastLonger;
  const auto waits = [&](int r) {
    return !shared.ranks[r].over && (r != trial.victim || victim_ends);
  };
  for (int r = 0; r < trial.ranks; ++r) {
    while (waits(r) && now() < end) ::usleep(500);
  }
}

bool run_trial(const Trial& trial, bool tell, Totals& totals) {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared;
  std::string folder = std::filesystem::current_path() / "random-faults-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return false;
  std::vector<pid_t> pids;
  for (int r = 0; r < trial.ranks; ++r) {
    pids.push_back(::fork());
    if (pids.back() == 0) {
      ::_exit(be_rank(trial, r, "file://" + folder, shared));
    }
  }
  const double joined_by = now() + kOtherTimeout;
  while (shared.inside < trial.ranks && now() < joined_by) ::usleep(200);
  ::usleep(static_cast<useconds_t>(trial.delay * 1e6));
  const double struck = now();
  strike(trial, pids[static_cast<std::size_t>(trial.victim)], shared);
  await_ranks(trial, shared);
  const bool good = Judge(trial, shared, struck, tell).good(totals);
  for (const pid_t pid : pids) {
    if (!good || pid == pids[static_cast<std::size_t>(trial.victim)]) ::kill(pid, SIGKILL);
  }
  for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  std::filesystem::remove_all(folder);
  ::munmap(memory, sizeof(Shared));
  return good;
}

struct Options {
  int trials = 10, ranks = 0, fault = -1, groups = -1;
  std::uint64_t seed = 1;
  std::string transport;
  bool tell = false;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--tell") {
      options.tell = true;
      continue;
    }
    if (++i == argc) return false;
    const std::string value = argv[i];
    const int number = std::atoi(argv[i]);
    if (word == "--trials") {
      options.trials = number;
    } else if (word == "--ranks") {
      options.ranks = number;
    } else if (word == "--groups") {
      options.groups = number;
    } else if (word == "--seed") {
      options.seed = std::strtoull(argv[i], nullptr, 10);
    } else if (word == "--transport") {
      options.transport = value;
    } else if (word == "--fault") {
      const auto at = std::find(std::begin(kFaults), std::end(kFaults), value);
      options.fault = static_cast<int>(at - std::begin(kFaults));
      if (at == std::end(kFaults)) return false;
    } else {
      return false;
    }
  }
  return options.ranks <= kMaxRanks;
}

Trial make_trial(const Options& options, std::uint64_t seed) {
  Random random(mix(seed));
  Trial trial{};
  trial.seed = seed;
  trial.fault = static_cast<Fault>(random.under(4));
  trial.ranks = 2 + random.under(3);
  trial.transport = random.chance(500) ? "shm" : "tcp";
  trial.groups_permille = random.chance(300) ? 0 : random.chance(500) ? 10 : 100;
  if (options.fault >= 0) trial.fault = static_cast<Fault>(options.fault);
  if (options.ranks > 0) trial.ranks = options.ranks;
  if (options.groups >= 0) trial.groups_permille = options.groups;
  if (!options.transport.empty()) trial.transport = options.transport == "shm" ? "shm" : "tcp";
  trial.delay = 1e-6 * random.under(150'000);
  trial.pause = 1e-6 * random.under(1'000'000);
  trial.victim = random.under(trial.ranks);
  return trial;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 64;
  Totals totals;
  for (int i = 0; i < options.trials; ++i) {
    const Trial trial = make_trial(options, options.seed + static_cast<std::uint64_t>(i));
    ++totals.trials;
    totals.bad += !run_trial(trial, options.tell, totals);
  }
  std::printf(
      "%d trials, %d bad; %llu operations, %llu wrong results; told of a loss after at most "
      "%.1f ms, %d directly, %d of a rank that left after it\n",
      totals.trials, totals.bad, static_cast<unsigned long long>(totals.operations),
      static_cast<unsigned long long>(totals.wrong), totals.latest * 1000, totals.directly,
      totals.indirectly);
  return totals.bad == 0 && totals.wrong == 0 ? 0 : 1;
}
