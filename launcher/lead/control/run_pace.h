// PaceMeter: how far and how fast a program goes, by what its ranks report (base/run_progress.h).
// The lowest rank that reports in a round counts. Pure.
#pragma once

#include <deque>
#include <optional>

#include "base/clock.h"
#include "base/run_progress.h"

namespace dlaunch {

struct RunPace {
  int rank = 0;
  RunProgress last;
  Duration age{};                          // of the last report
  std::optional<double> steps_per_s = {};  // of late
  std::optional<Duration> left = {};       // until the last step, at this rate
  // No report has come for much longer than usual.
  bool stands = false;
};

class PaceMeter {
 public:
  void take(int rank, const RunProgress& progress);
  // The ranks have new places, and the time between two rounds is no step's.
  void begin_round();
  // nullopt: no rank has reported anything.
  std::optional<RunPace> at(TimePoint now) const;

 private:
  static constexpr Duration kWindow = std::chrono::seconds(30);
  static constexpr std::size_t kMostReports = 64;

  int rank_ = -1;
  bool in_round_ = false;            // the last report is of this round
  std::deque<RunProgress> reports_;  // in this round; the last one without it, too
};

}  // namespace dlaunch
