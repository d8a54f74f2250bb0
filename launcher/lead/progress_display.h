// ProgressDisplay: shows a job's ProgressLine on our stderr (--progress). One thread, the loop's.
#pragma once

#include <functional>
#include <optional>

#include <asio/io_context.hpp>

#include "launcher/lead/control/progress_line.h"
#include "launcher/output/output_hub.h"
#include "launcher/wire/deadline_timer.h"

namespace dlaunch {

class ProgressDisplay {
 public:
  using Look = std::function<void(std::function<void(const JobStatus&)> done)>;
  using Pace = std::function<std::optional<RunPace>()>;
  // hub must outlive it, and look() may call back until then.
  ProgressDisplay(asio::io_context& loop, OutputHub& hub, bool live, Look look, Pace pace);

  // The job may have another state or another round.
  void observe(JobState state, int round);
  // The program has reported something.
  void progressed() { turn(); }
  // The job has ended.
  void end();

 private:
  void turn();

  OutputHub& hub_;
  const Look look_;
  const Pace pace_;
  ProgressLine line_;
  DeadlineTimer timer_;
  JobState state_ = JobState::idle;
  int round_ = 0;
  bool ended_ = false;
};

}  // namespace dlaunch
