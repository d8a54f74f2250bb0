// The times of ranks and links in the steps of a job, which StragglerDetector and LinkCosts judge.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dlaunch {

// Of one rank in one step, in seconds.
struct RankTimes {
  double late = 0;   // when it entered the collective; all ranks share the origin
  double in_op = 0;  // within collectives: waiting and moving data
  double step = 0;   // the whole step
  double input = 0;  // waiting for input, outside collectives; 0 if unknown
};

// Of one link in one step; there is one for a pair of ranks and direction.
struct LinkTimes {
  int from = 0, to = 0;  // ranks
  int kind = 0;          // links are compared within their kind: shared memory, TCP …
  double bytes = 0;
  double seconds = 0;  // in which bytes were waiting to be moved
};

// One step, or a digest of several, in which each value is a median. Digests are better above 100
// steps a second. A step with a value that is not a number is left out. Links may differ from step
// to step; one that is in fewer than half of a window's steps is not judged.
struct StepTimes {
  int steps = 1;
  std::vector<RankTimes> ranks;
  std::vector<LinkTimes> links;
};

// Whether all values make sense, and all ranks are there.
bool usable(const StepTimes& step, std::size_t ranks);
// The median time of a step.
double step_of(const std::vector<StepTimes>& window);

enum class SlowPhase {
  before_op,  // it computes, or its activity is unknown
  input,      // most of the excess is waiting for input
  link,       // data moves slowly from `rank` to `peer`
};

// Instead of a peer. kNoPeer: the rank itself is slow. The others: its links to all other ranks,
// from them, or both.
inline constexpr int kNoPeer = -1, kToAll = -2, kFromAll = -3, kBothWays = -4;

struct Slowness {
  int rank = -1;
  int peer = kNoPeer;  // of a link: the other end
  SlowPhase phase = SlowPhase::before_op;
  double ratio = 1;  // its time over that of the others
  double gain = 0;   // share of the step that the job would save without it
  std::string sentence;
};

}  // namespace dlaunch
