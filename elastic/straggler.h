// StragglerJudge decides about slow ranks: no action, a warning, a restart in place, and if that
// did not help, a move to a spare. Pure: events in, actions out. StragglerDetector finds slow
// ranks; this decides whether to act. Steps drive it, so it has no deadline().
//
// It acts on a rank only if
// - there are 3 ranks or more, and `cooldown` has passed since the last action;
// - the gain within `horizon` is more than 3 times the cost of a recovery;
// - to evict: a restart did not help, there is a spare or a rank more than the job needs, and no
//   more than a tenth of the nodes, but one in any case, was evicted within an hour.
// Of several slow ranks it takes the one whose absence gains most; the absence of one of two
// equally slow ranks gains nothing. It never acts on a link, because the end at fault is unknown.
//
// After each action it compares: the first window of the new round must show half of the promised
// gain. A restart that did not help leads to an eviction. If no eviction may follow, or the
// eviction did not help either, the cause was not that process or its host, and no action follows
// for `hold`. `gain` comes from the ranks' arrival times (the what-if of Lin et al., OSDI 2025).
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "elastic/straggler_detector.h"

namespace dlaunch {

enum class StragglerMode { off, warn, restart, evict };

struct StragglerJudgeConfig {
  StragglerMode mode = StragglerMode::warn;
  StragglerConfig detection;
  Duration recovery_cost = std::chrono::seconds(10);  // until one is measured
  Duration horizon = std::chrono::hours(1);
  Duration cooldown = std::chrono::minutes(10);
  Duration hold = std::chrono::hours(1);
};

class StragglerJudge {
 public:
  // -- Events
  struct NewRound {  // also the first; clears earlier warnings
    int ranks = 1;
    int nodes = 1;
    int min_ranks = 1;
    int spares = 0;
  };
  struct Recovered {  // from losing a rank to the next step
    Duration cost;
  };
  using Event = std::variant<NewRound, Recovered, StepTimes>;

  // -- Actions
  struct Warn {
    Slowness slowness;
  };
  struct Clear {  // it is as fast as the others again
    Slowness slowness;
  };
  struct Restart {  // of the process, in place
    int rank;
    std::string why;
  };
  struct Evict {  // to a spare, or for good
    int rank;
    std::string why;
  };
  struct Refrain {  // no action for a while, and why
    int rank;
    std::string why;
  };
  using Action = std::variant<Warn, Clear, Restart, Evict, Refrain>;

  explicit StragglerJudge(StragglerJudgeConfig config);

  std::vector<Action> step(TimePoint now, const Event& event);

 private:
  enum class Stage { none, restarting, restarted_in_vain, evicting };

  void on(TimePoint now, const NewRound& event);
  void on(TimePoint now, const Recovered& event);
  void on(TimePoint now, const StepTimes& event);
  void compare(TimePoint now, double step);
  void consider(TimePoint now, double step);
  void act(TimePoint now, const Slowness& slowness, double step, Stage stage);
  void refrain(TimePoint now, int rank, Duration time, std::string why);
  std::optional<Slowness> worst() const;
  std::string why_not_evicted(TimePoint now) const;

  const StragglerJudgeConfig config_;
  StragglerDetector detector_;
  NewRound round_;
  Duration recovery_cost_;
  // The last action: its rank and the promised gain.
  Stage stage_ = Stage::none;
  int rank_ = -1;
  bool round_began_ = false;           // since the action
  double step_before_ = 0, gain_ = 0;  // seconds
  std::optional<TimePoint> acted_;
  TimePoint not_before_{};         // no action earlier
  std::deque<TimePoint> evicted_;  // within an hour
  std::vector<Action> actions_;
};

}  // namespace dlaunch
