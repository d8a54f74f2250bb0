// StragglerDetector finds ranks and links that are lastingly slower than the others, from the times
// that the collectives themselves measure. Pure.
//
// A window has at least `window_steps` steps and, if steps are short, lasts `window_time`; two
// fifths of the steps suffice if they take twice that time. In a window a rank is a candidate if
// - its median time between two collectives is `ratio` times that of the others (the median of
//   their medians), and it arrives later than they do by as much: a rank with much work for which
//   no rank waits is not slow, and neither is one that a link delayed;
// - the excess is more than 4 times the spread of the others (1.4826 MAD) and than 4 times the
//   error of its own median, which replaces the spread if there are only two ranks;
// - it exceeds half of that in 4 of 5 steps: this excludes pauses, and slowness that wanders;
// - it costs a twentieth of the step at least.
// A link is a candidate if a byte takes it twice as long as other links of its kind, by the same
// measures, and as links from the same sender and to the same receiver: if all of those are slow,
// the rank is. For links of `line_kind` the cause may be the line of the host: the verdict says so
// if all links from a rank, or all to it, are slow beside those of the others.
// `windows` windows in a row make a candidate slow, and as many with less than half of the excess
// clear it. So the detector finds nothing if all are slow alike. It compares the medians of ranks,
// not the last rank of each step: among many ranks with noise, one of 1.2x is rarely the very last.
//
// Members need not be ranks: to compare hosts, feed a second detector with one member for each
// host.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

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

struct StragglerConfig {
  double ratio = 1.1;
  int window_steps = 50;
  Duration window_time = std::chrono::seconds(10);
  int windows = 3;         // in a row
  int warmup_windows = 2;  // left out at the start of a round
  int line_kind = -1;      // of links between hosts
};

enum class SlowPhase {
  before_op,  // it computes, or its activity is unknown
  input,      // most of the excess is waiting for input
  link,       // data moves slowly from `rank` to `peer`
};

// Instead of a peer. kNoPeer: the rank itself is slow; kToAll, kFromAll: its links to or from all
// others are.
inline constexpr int kNoPeer = -1, kToAll = -2, kFromAll = -3;

struct Slowness {
  int rank = -1;
  int peer = kNoPeer;  // of a link: the other end
  SlowPhase phase = SlowPhase::before_op;
  double ratio = 1;  // its time over that of the others
  double gain = 0;   // share of the step that the job would save without it
  std::string sentence;
};

class StragglerDetector {
 public:
  explicit StragglerDetector(StragglerConfig config) : config_(config) {}

  // A new round: clears all windows and verdicts.
  void reset(int ranks);

  struct Window {
    double step = 0;  // median, in seconds
    bool warmup = false;
    std::vector<Slowness> raised, cleared;
  };
  // The result of a window, if this step was its last.
  std::optional<Window> add(TimePoint now, const StepTimes& step);

  // The members that are slow now, each as of the last window that showed it.
  std::vector<Slowness> slow() const;

 private:
  struct Member {
    int over = 0, under = 0;  // windows in a row
    bool raised = false;
    Slowness slowness;
  };
  struct LinkSamples {
    std::vector<double> per_byte, bytes;
  };
  // The result of one window for a member.
  struct Finding {
    Slowness slowness;
    bool candidate = false;
    bool clear = false;
  };

  bool usable(const StepTimes& step) const;
  Window close();
  std::vector<Finding> judge_ranks(double step) const;
  std::vector<Finding> judge_links(double step) const;
  static void judge_lines(const std::map<std::pair<int, int>, LinkSamples>& links, double step,
                          std::vector<Finding>& findings);
  double gain_without(int rank, double step) const;

  const StragglerConfig config_;
  int ranks_ = 0;
  int closed_ = 0;  // windows since reset
  int steps_ = 0;   // in the current window
  TimePoint began_{};
  std::vector<StepTimes> window_;
  std::map<std::pair<int, int>, Member> members_;  // by rank and peer
};

}  // namespace dlaunch
