#include "fault_trial.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "random_run.h"

namespace random_ops {
namespace {

constexpr double kStopTimeout = 2, kOtherTimeout = 10;  // of operations
constexpr double kMayLastLonger = 6;

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

bool join(const Trial& trial, int rank, const std::string& url, Shared::Rank& own, dl_comm*& world,
          void*& memory) {
  dl_options options;
  dl_options_init(&options);
  options.rank = rank;
  options.size = trial.ranks;
  options.transport = trial.transport;
  options.op_timeout_s = trial.op_timeout();
  options.init_timeout_s = trial.init_timeout;
  own.result = dl_init(url.c_str(), &options, &world);
  // Here the bootstrap includes the memory that others read.
  const bool joined = own.result == DL_OK;
  if (joined) own.result = dl_alloc(world, kSharedBytes, &memory);
  if (own.result == DL_OK) return true;
  own.joining = !joined;
  own.lost = dl_peer_lost(world);
  own.victim_there = true;
  std::snprintf(own.text, sizeof own.text, "%s", dl_last_error(world));
  own.told = monotonic_seconds();
  if (joined) dl_finalize(world);
  return false;
}

void be_rank(const Trial& trial, int rank, const std::string& url, const Begin& begin,
             Shared& shared) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  begin(rank, shared);
  dl_comm* world = nullptr;
  auto& own = shared.ranks[rank];
  void* memory = nullptr;
  if (!join(trial, rank, url, own, world, memory)) return;
  const Shape shape{.seed = trial.seed,
                    .ranks = trial.ranks,
                    .max_bytes = 2 << 20,
                    .groups_permille = trial.groups_permille};
  Limits limits;
  if (trial.seconds > 0) limits.seconds = trial.seconds;
  if (trial.seconds_after > 0) {
    limits.enough = [&] {
      return shared.struck > 0 && monotonic_seconds() > shared.struck + trial.seconds_after;
    };
  }
  {
    Run run(
        world, shape, limits,
        [rank](const std::string& what) {
          std::fprintf(stderr, "WRONG on rank %d: %s\n", rank, what.c_str());
        },
        memory, kSharedBytes);
    run.on_failure = [&](const Outcome& outcome) {
      const auto& members = run.members(outcome.group);
      own.result = outcome.result;
      own.lost = outcome.lost;
      own.victim_there = std::count(members.begin(), members.end(), trial.victim) > 0;
      own.in_group = outcome.group != 0;
      std::snprintf(own.text, sizeof own.text, "%s", outcome.text.c_str());
      own.told = monotonic_seconds();
    };
    ++shared.inside;
    {
      std::optional<AbortsOnRequest> aborts;
      if (rank == trial.victim && trial.fault == Fault::abort) aborts.emplace(world, shared);
      run.run();
    }
    own.operations = run.operations.load();
    own.wrong = run.wrong.load();
  }
  dl_finalize(world);
}

// Whether the text names this rank: "rank 2", "rank 0, 3", "rank 1-3", "ranks 0-2 (no answer)".
bool names_rank(const char* text, int rank) {
  for (const char* at = text; (at = std::strstr(at, "rank")) != nullptr;) {
    at += std::strspn(at, "ranks");
    while (*at == ' ' || *at == ',') {
      char* end = nullptr;
      const long first = std::strtol(at + std::strspn(at, " ,"), &end, 10);
      if (end == at + std::strspn(at, " ,")) break;
      const long last = *end == '-' ? std::strtol(end + 1, &end, 10) : first;
      if (first <= rank && rank <= last) return true;
      at = end;
    }
  }
  return false;
}

// As the job numbers it: "rank 2 (pid 4711 on a)", "the job's rank 2".
bool names_jobs_rank(const char* text, int rank) {
  const std::string process = "rank " + std::to_string(rank) + " (pid ";
  const char* const jobs = std::strstr(text, "the job's rank ");
  return std::strstr(text, process.c_str()) != nullptr || (jobs && names_rank(jobs, rank));
}

// Whether the rank should end by itself, and in time.
bool should_end(const Trial& trial, const Shared& shared, int rank) {
  if (rank == trial.lost_before) return false;
  if (rank != trial.victim || shared.struck == 0) return true;
  return trial.fault == Fault::abort || is_harmless(trial.fault);
}

class Judge {
 public:
  Judge(const Trial& trial, Shared& shared, bool tell)
      : trial_(trial), shared_(shared), struck_(shared.struck), tell_(tell) {}

  bool good(Totals& totals) {
    const bool nobody_lost = trial_.lost_before < 0 && is_harmless(trial_.fault);
    totals.struck += struck_ > 0;
    for (int r = 0; r < trial_.ranks; ++r) {
      const auto& rank = shared_.ranks[r];
      totals.operations += rank.operations;
      totals.wrong += rank.wrong;
      if (!should_end(trial_, shared_, r)) continue;
      if (tell_ && rank.told > 0) complain(r, "was told");
      if (rank.wrong > 0) bad(r, "had wrong results");
      if (!rank.over) {
        bad(r, "hangs");
      } else if (nobody_lost) {
        if (rank.told > 0) bad(r, "failed although nobody was lost");
      } else if (rank.told == 0) {
        bad(r, "has not noticed");
      } else if (r != trial_.victim || trial_.lost_before >= 0) {
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
    const double limit = rank.joining ? trial_.init_timeout : by_timeout ? kStopTimeout : 0;
    if (late > limit + kMayLastLonger) bad(r, "was told late");
    auto& latest = by_timeout ? totals.latest_stop : totals.latest;
    latest = std::max(latest, late);
    if (rank.result == DL_ERR_TIMEOUT && (by_timeout || rank.joining)) return judge_timeout(r);
    if (rank.result != DL_ERR_PEER_LOST) return bad(r, "had an error of another kind");
    if (rank.joining) {
      const bool named = names_rank(rank.text, trial_.victim) ||
                         (trial_.lost_before >= 0 && names_rank(rank.text, trial_.lost_before));
      ++(named ? totals.directly : totals.indirectly);
      if (!named && !names_one_that_left(r)) bad(r, "got the name of a rank that was there");
      return;
    }
    if (rank.lost == trial_.victim || (rank.lost >= 0 && rank.lost == trial_.lost_before)) {
      ++totals.directly;
      return;
    }
    ++totals.indirectly;
    if (rank.lost < 0) return bad(r, "got no rank's name");
    if (!had_left(rank.lost, r)) bad(r, "got the name of a rank that was there");
  }
  void judge_timeout(int r) {
    const auto& rank = shared_.ranks[r];
    // In a group without the victim the others wait for a rank that waits for it elsewhere. A
    // group's own numbers mean nothing to a reader.
    const bool named = !rank.victim_there ? std::strstr(rank.text, "rank") != nullptr
                       : rank.in_group    ? names_jobs_rank(rank.text, trial_.victim)
                                          : names_rank(rank.text, trial_.victim);
    // A rank that stops while it holds the lock of the file store has no name.
    const bool locks = std::strstr(rank.text, "holds the lock") != nullptr;
    // While they connect, a rank that waits for a connection cannot know that the other one waits,
    // too.
    const bool unconnected = std::strstr(rank.text, "not connected") != nullptr;
    if (!named && !locks && !unconnected) bad(r, "was told another rank");
  }
  // A rank that fails to join closes its links before dl_init() returns, and records that a little
  // later.
  bool had_left(int other, int r) const {
    const auto& gone = shared_.ranks[other];
    const double slack = gone.joining ? kMayLastLonger : 0;
    return gone.told > 0 && gone.told <= shared_.ranks[r].told + slack;
  }
  bool names_one_that_left(int r) const {
    for (int other = 0; other < trial_.ranks; ++other) {
      if (other != r && had_left(other, r) && names_rank(shared_.ranks[r].text, other)) return true;
    }
    return false;
  }
  void bad(int r, const char* how) {
    good_ = false;
    complain(r, how);
  }
  void complain(int r, const char* how) {
    const auto& rank = shared_.ranks[r];
    std::fprintf(stderr, "%s\n  victim %d, rank %d %s", trial_.text.c_str(), trial_.victim, r, how);
    if (rank.told > 0) {
      std::fprintf(stderr, ": %.3f s after, %s%s, lost %d: %s", rank.told - struck_,
                   dl_result_name(rank.result), rank.joining ? " (joining)" : "", rank.lost,
                   rank.text);
    }
    std::fprintf(stderr, "\n");
  }

  const Trial& trial_;
  Shared& shared_;
  const double struck_;
  const bool tell_;
  bool good_ = true;
};

}  // namespace

double Trial::op_timeout() const { return fault == Fault::stop ? kStopTimeout : kOtherTimeout; }

double monotonic_seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

bool ranks_are_over(const Trial& trial, const Shared& shared) {
  for (int r = 0; r < trial.ranks; ++r) {
    if (!shared.ranks[r].over && should_end(trial, shared, r)) return false;
  }
  return true;
}

bool run_trial(const Trial& trial, const Begin& begin, const Happen& happen, bool tell,
               Totals& totals) {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& shared = *new (memory) Shared;
  std::string folder = std::filesystem::current_path() / "random-faults-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return false;
  std::vector<pid_t> pids;
  for (int r = 0; r < trial.ranks; ++r) {
    pids.push_back(::fork());
    if (pids.back() == 0) {
      be_rank(trial, r, "file://" + folder, begin, shared);
      shared.ranks[r].over = true;
      ::_exit(0);
    }
  }
  const auto victim = pids[static_cast<std::size_t>(trial.victim)];
  happen(pids, shared);
  // Until all that should end have ended, or are overdue.
  const double limit = std::max(trial.op_timeout(), trial.init_timeout) + kMayLastLonger;
  const double end = monotonic_seconds() + limit;
  while (!ranks_are_over(trial, shared) && monotonic_seconds() < end) ::usleep(500);
  const bool good = Judge(trial, shared, tell).good(totals);
  ++totals.trials;
  totals.bad += !good;
  for (const pid_t pid : pids) {
    if (!good || pid == victim) ::kill(pid, SIGKILL);  // the victim may only be stopped
  }
  for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  std::filesystem::remove_all(folder);
  ::munmap(memory, sizeof(Shared));
  return good;
}

void print(const Totals& totals) {
  std::printf(
      "%d trials, %d bad; %llu operations, %llu wrong results; learned of a loss after at most "
      "%.1f ms, of a stop %.1f ms; %d directly, %d of a rank that left after it\n",
      totals.trials, totals.bad, static_cast<unsigned long long>(totals.operations),
      static_cast<unsigned long long>(totals.wrong), totals.latest * 1000,
      totals.latest_stop * 1000, totals.directly, totals.indirectly);
}

}  // namespace random_ops
