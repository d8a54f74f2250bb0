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
// judge_links() says which links are candidates (elastic/slow_links.h).
// `windows` windows in a row make a candidate slow, and as many with less than half of the excess
// clear it. So the detector finds nothing if all are slow alike. It compares the medians of ranks,
// not the last rank of each step: among many ranks with noise, one of 1.2x is rarely the very last.
//
// Members need not be ranks: to compare hosts, feed a second detector with one member for each
// host.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "elastic/slow_links.h"
#include "elastic/step_times.h"

namespace dlaunch {

struct StragglerConfig {
  double ratio = 1.1;
  int window_steps = 50;
  Duration window_time = std::chrono::seconds(10);
  int windows = 3;         // in a row
  int warmup_windows = 2;  // left out at the start of a round
  int line_kind = -1;      // of links between hosts
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
  using Finding = LinkFinding;  // of a rank, too

  Window close();
  std::vector<Finding> judge_ranks(double step) const;
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
