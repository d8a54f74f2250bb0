// One trial of a fault: the ranks of a random program, as processes, something that happens to one
// of them, and what the others must have been told about it.
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
  int lost_before = -1;  // killed before it comes to the fault
  const char* transport = "shm";
  int groups_permille = 0;
  // Of the program, and how much of it after a fault that harms nobody. 0: it goes on for ever.
  double seconds = 0, seconds_after = 0;
  double init_timeout = 10;  // of the meeting
  double op_timeout() const;
  std::string text;  // how to do it again
};

// Between the processes of one trial.
struct Shared {
  std::atomic<double> struck{0};  // when it happened; 0: not yet
  std::atomic<int> inside{0};     // ranks that have joined
  std::atomic<bool> abort_now{false};
  struct Rank {
    std::atomic<double> told{0};  // when it had its first error
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> operations{0}, wrong{0};
    bool joining;  // when it was told
    dl_result result;
    int lost;
    bool victim_there, in_group;  // where it was told
    char text[600];
  } ranks[kMaxRanks];
};

struct Totals {
  int trials = 0, bad = 0, struck = 0;
  std::uint64_t operations = 0, wrong = 0;
  double latest = 0, latest_stop = 0;  // told of a kill or abort; of a stop
  int directly = 0, indirectly = 0;    // told the name of the victim; of a rank that left after it
};

void print(const Totals& totals);

double monotonic_seconds();

// `begin` is called in each rank's process before it joins. `happen` is called in this one and does
// it, or waits until it has been done, and sets Shared::struck; it is over at once where the ranks
// are (see ranks_are_over). False: something was wrong, which has been told on standard error.
using Begin = std::function<void(int rank, Shared&)>;
using Happen = std::function<void(const std::vector<pid_t>& ranks, Shared&)>;
bool run_trial(const Trial& trial, const Begin& begin, const Happen& happen, bool tell,
               Totals& totals);
bool ranks_are_over(const Trial& trial, const Shared& shared);

}  // namespace random_ops
