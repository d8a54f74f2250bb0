// StragglerDetector finds ranks and links that are lastingly slower than the others, from the times
// that the collectives themselves give. Pure.
//
// Steps are gathered into windows of `window_steps`, and of `window_time` where steps are short;
// two fifths of the steps do where they take twice that time. In a window a rank is a candidate if
// - its median time between two collectives is `ratio` times that of the others (the median of
//   their medians), and it arrives later than they do by as much: who has much to do while nobody
//   waits is not slow, nor who arrives late because a link let it go late;
// - that is more than 4 times the spread of the others (1.4826 MAD) and than 4 times the error of
//   its own median, which stands in where there are only two ranks;
// - it is more than half of that in 4 of 5 steps: pauses, and slowness that wanders, are not;
// - it costs a twentieth of the step at least.
// A link is one if a byte takes it twice as long as others of its kind, by the same measures, and
// as those from the same sender and those to the same receiver: where all are slow it is that rank.
// Of links of `line_kind` it may be the line of its host: where all from a rank, or all to it, are
// slow beside those of the others, that is said.
// `windows` windows in a row make a candidate slow, and as many with less than half of the excess
// clear it. So nothing is found where all are slow alike. The medians of ranks are compared, not
// who was last in a step: among many ranks with noise, one of 1.2x is rarely the very last.
//
// Members need not be ranks: to compare hosts, feed a second detector with one member a host.
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
  double late = 0;   // when it entered the collective, from any origin common to all ranks
  double in_op = 0;  // within collectives: waiting and moving data
  double step = 0;   // all of it
  double input = 0;  // of the time outside collectives, waiting for input; 0 where not known
};

// Of one link in one step; there is one for a pair of ranks and direction.
struct LinkTimes {
  int from = 0, to = 0;  // ranks
  int kind = 0;          // links are compared with others of their kind: shared memory, TCP …
  double bytes = 0;
  double seconds = 0;  // with bytes waiting to be moved
};

// One step, or a digest of several: then each value is the median over them. Above 100 steps a
// second digests are better. A step with a value that is no number is left out. Links need not be
// the same from step to step; one that is in fewer than half of a window's is not judged.
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
  before_op,  // it computes, or what it does is not known
  input,      // most of the excess is waiting for input
  link,       // data moves slowly from `rank` to `peer`
};

// In place of a peer: none, where the rank itself is slow; all, to which or from which its links
// are.
inline constexpr int kNoPeer = -1, kToAll = -2, kFromAll = -3;

struct Slowness {
  int rank = -1;
  int peer = kNoPeer;  // of a link: the other end
  SlowPhase phase = SlowPhase::before_op;
  double ratio = 1;  // its time over that of the others
  double gain = 0;   // share of the step that would be saved without it
  std::string sentence;
};

class StragglerDetector {
 public:
  explicit StragglerDetector(StragglerConfig config) : config_(config) {}

  // A new round: all windows and verdicts are forgotten.
  void reset(int ranks);

  struct Window {
    double step = 0;  // median, in seconds
    bool warmup = false;
    std::vector<Slowness> raised, cleared;
  };
  // What a window has shown, when this step was its last.
  std::optional<Window> add(TimePoint now, const StepTimes& step);

  // Those that are slow now, as of the last window that showed it.
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
  // What one window says of a member.
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
