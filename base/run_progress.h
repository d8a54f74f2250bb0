// RunProgress: how far a program has come, in its own words. The program writes lines to the pipe
// of its heartbeats; libdlring does so for dl_report_progress(). Each line counts as a heartbeat,
// too.
//   1200/5000 loss=1.83 lr=0.0003     step, total and values; all but the step may be left out
//   @184467440737 1200/5000           after the time of the host's monotonic clock, in ns
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

struct ProgressValue {
  std::string name;
  double value = 0;
  bool operator==(const ProgressValue&) const = default;
};

struct RunProgress {
  TimePoint at{};          // when the program said so
  std::int64_t step = 0;   // not negative
  std::int64_t total = 0;  // of steps; 0: not known
  std::vector<ProgressValue> values;
  bool operator==(const RunProgress&) const = default;
};

// Limits of a line, which a pipe therefore takes as a whole or not at all. Longer names are cut,
// and further values left out.
inline constexpr std::size_t kMaxProgressValues = 16, kMaxProgressName = 32;

// The line with its newline. In names, what is not a letter, a digit or one of "_-./%:" in ASCII
// becomes "_".
std::string progress_line_of(const RunProgress& progress);

// Takes what the pipe holds, in pieces. A line that is none of these is skipped.
class ProgressReader {
 public:
  // now: such a line without a time, or with an impossible one, counts as written now.
  void feed(TimePoint now, std::string_view bytes);
  // The newest; nullopt: there was none.
  const std::optional<RunProgress>& last() const { return last_; }

 private:
  void take(TimePoint now, std::string_view line);

  std::string begun_;   // of a line
  bool skips_ = false;  // the rest of a line that is too long
  std::optional<RunProgress> last_;
};

}  // namespace dlaunch
