// One trial of a fault: the ranks of a random program, as processes, a fault in one of them, and
// the errors that the others must have got.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dlaunch/ring.h"

namespace random_ops {

inline constexpr int kMaxRanks = 16;

enum class Fault {
  kill,
  abort,  // calls dl_abort()
  stop,   // for good
  pause,  // stops for a while, shorter than any limit
  // At failpoints only:
  tear,  // killed after half a write
  short_writes,
};
inline constexpr const char* kFaultNames[] = {"kill", "abort", "stop", "pause", "tear", "short"};
inline bool is_harmless(Fault fault) {
  return fault == Fault::pause || fault == Fault::short_writes;
}

struct Trial {
  std::uint64_t seed = 1;
  Fault fault = Fault::kill;
  int ranks = 2, victim = 0;
  int lost_before = -1;  // killed before it reaches the fault
  const char* transport = "shm";
  int groups_permille = 0;
  // Seconds of the program, and of its rest after a harmless fault. 0: it goes on for ever.
  double seconds = 0, seconds_after = 0;
  double init_timeout = 10;  // of the bootstrap
  double op_timeout() const;
  std::string text;  // the command to repeat it
};

// Shared by the processes of one trial.
struct Shared {
  std::atomic<double> struck{0};  // time of the fault; 0: not yet
  std::atomic<int> inside{0};     // ranks that have joined
  std::atomic<bool> abort_now{false};
  struct Rank {
    std::atomic<double> told{0};  // time of its first error
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> operations{0}, wrong{0};
    bool joining;  // at its first error
    dl_result result;
    int lost;
    bool victim_there, in_group;  // in the group of that error
    char text[600];
  } ranks[kMaxRanks];
};

struct Totals {
  int trials = 0, bad = 0, struck = 0;
  std::uint64_t operations = 0, wrong = 0;
  double latest = 0, latest_stop = 0;  // error after a kill or abort; after a stop
  int directly = 0, indirectly = 0;    // errors that name the victim; a rank that left later
};

void print(const Totals& totals);

double monotonic_seconds();

// Calls `begin` in each rank's process before it joins. Calls `happen` in this one, which strikes,
// or waits for the fault, and sets Shared::struck; it returns at once when the ranks are over (see
// ranks_are_over). False: something was wrong; the details are on standard error.
using Begin = std::function<void(int rank, Shared&)>;
using Happen = std::function<void(const std::vector<pid_t>& ranks, Shared&)>;
bool run_trial(const Trial& trial, const Begin& begin, const Happen& happen, bool tell,
               Totals& totals);
bool ranks_are_over(const Trial& trial, const Shared& shared);

}  // namespace random_ops
