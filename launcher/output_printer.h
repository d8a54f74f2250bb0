// OutputPrinter: how a worker's line looks on one of our outputs: time stamp, prefix, colour.
//   2026-11-21 14:03:07.123 [3] text
//   [host:0-7] text that eight ranks have said
//   [3] the first MiB of a very long line …
// It appends to the sink and does not flush it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "launcher/output_sink.h"
#include "launcher/plan.h"

namespace dlaunch {

// Behind each piece but the last of a line that is too long to be shown whole.
inline constexpr std::string_view kContinuedMark = " …";

class OutputPrinter {
 public:
  // Both must outlive the printer. Colours only if the plan has them and the sink is a terminal, or
  // leads to one.
  OutputPrinter(const Plan& plan, OutputSink& sink);

  // `read_at`: when the line was read from the worker.
  void print(int rank, TimePoint read_at, std::string_view line, bool continued);
  void print(const RankSet& ranks, TimePoint read_at, std::string_view line);

 private:
  std::string make_prefix(const std::string& ranks, int color) const;
  void put(const std::string& prefix, TimePoint read_at, std::string_view line, bool continued);
  const std::string& time_stamp(TimePoint read_at);

  const OutputPlan& plan_;
  const std::string host_;
  OutputSink& sink_;
  const bool color_;
  std::vector<std::string> prefixes_;  // by rank
  TimePoint stamped_{};
  std::string stamp_;
};

}  // namespace dlaunch
