// ProgressLine: the line that says how far a job is: on a terminal one row, which changes in place;
// elsewhere a line now and then.
//   starting: 3 of 4 hosts; node7: being started
//   starting: 24 of 32 workers
//   rendezvous: 30 of 32 ranks, waiting for ranks 7,31
//   step 1200/5000  24%  12.4 steps/s  ETA 5m07s  loss 1.83
//   round 2: restarting, 31 of 32 workers
//   round 3: resizing, 32 -> 48 workers
// It is empty while a job runs that reports no progress. Pure.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "launcher/lead/control/job_status.h"

namespace dlaunch {

// What the job is at; "": nothing that concerns its start, its restart or a resize.
std::string stage_of(const JobStatus& job);
// It stays as it is until the job changes its state or its round.
bool is_settled(const JobStatus& job);
std::string in_words(const RunPace& pace);

class ProgressLine {
 public:
  // Jobs that start within this time show nothing of it.
  static constexpr Duration kQuickStart = std::chrono::seconds(1);
  // The least time between two lines where there is no terminal.
  static constexpr Duration kBetweenLines = std::chrono::seconds(30);

  // live: on a terminal. began: when the job did.
  ProgressLine(bool live, TimePoint began);

  struct Row {
    std::string text;  // "": none
    bool urgent = false;
    bool operator==(const Row&) const = default;
  };
  struct Turn {
    bool look = false;                // ask for the job's status, and pass it to looked()
    std::optional<Row> row;           // it has changed
    std::optional<std::string> line;  // to be printed
  };
  // Call it at deadline(), and after each of the calls below, and when there is news of the pace.
  Turn turn(TimePoint now, const std::optional<RunPace>& pace);
  TimePoint deadline() const { return next_; }

  void looked(TimePoint now, const JobStatus& job);
  // The job has another state or another round.
  void changed();
  // What is left to print at the end of the job.
  std::optional<std::string> last_line(const std::optional<RunPace>& pace) const;

 private:
  Row row_now(const std::optional<RunPace>& pace) const;
  Turn turn_of_row(TimePoint now, const Row& row);
  Turn turn_of_lines(TimePoint now, const std::optional<RunPace>& pace);

  const bool live_;
  const TimePoint first_;
  TimePoint next_;
  bool looks_ = false;    // a look is under way
  bool changed_ = false;  // since that look began
  TimePoint next_look_ = TimePoint::min();
  std::optional<TimePoint> quiet_since_;  // the job runs, and has no stage
  std::string stage_;
  // On a terminal
  Row shown_;
  // Elsewhere
  TimePoint next_line_ = TimePoint::min();
  std::string printed_;
  bool stood_ = false;  // as of the last turn; said once
};

}  // namespace dlaunch
