// OutputPrinter: formats a worker's line on one of our outputs: time stamp, prefix, colour.
//   2026-11-21 14:03:07.123 [3] text
//   [host:0-7] text that eight ranks have said
//   [3] the first MiB of a very long line …
// Progress bars stand below all lines of a terminal, and are drawn in place.
// An unfinished line stays open: the same rank's next text continues it, and any other output ends
// it first.
// OutputPlan::prefix takes the place of "[3] ".
// It appends to the sink and does not flush it.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "launcher/output/line_prefix.h"
#include "launcher/output/live_bars.h"
#include "launcher/output/output_sink.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

// Marks each piece but the last of a line that is too long to be shown whole.
inline constexpr std::string_view kContinuedMark = " …";

class OutputPrinter {
 public:
  // All must outlive the printer. It uses colours only if the plan wants them and the sink is a
  // terminal, or leads to one.
  OutputPrinter(const Plan& plan, const LocalRanks& local_ranks, OutputSink& sink);

  // `read_at`: when the line was read from the worker.
  void print(int rank, TimePoint read_at, std::string_view line, bool continued);
  void print(const RankSet& ranks, TimePoint read_at, std::string_view line);
  // The beginning of a line of this rank.
  void print_unfinished(int rank, TimePoint read_at, std::string_view text);
  void end_unfinished();
  // Call it before anything but a worker's line is appended to the sink.
  void make_way();
  // -- Progress bars
  // Whether the sink is a terminal where rows can be drawn in place.
  bool draws() const { return draws_; }
  // Whether bars are drawn in place; else they are ordinary lines.
  bool draws_bars() const {
    return draws_ && (plan_.bars == BarMode::first || plan_.bars == BarMode::all);
  }
  void set_bar(LiveBars::Who who, std::vector<std::string> rows) {
    bars_.set(who, std::move(rows));
  }
  // As LiveBars::set_own().
  void set_own_row(std::string row, bool urgent) { bars_.set_own(std::move(row), urgent); }
  // Call it after each turn that printed something, and at bars_due().
  void draw_bars(TimePoint now);
  std::optional<TimePoint> bars_due() const;
  // Hides the bars until draw_bars.
  void hide_bars();
  // Keeps the drawn rows where they are: another program is about to write below them.
  void leave_rows() { bars_.leave(); }
  // Ends the bars for good.
  void end_bars();

  // The local ranks have changed.
  void forget_prefixes() { prefixes_.clear(); }
  // The user has typed a line; the cursor is on the next one.
  void typed();
  // These are the last lines on the terminal, this rank has said them all, and no other output came
  // since. It remembers no more than kRemembered lines.
  bool shown_last(int rank, const std::vector<std::string>& lines) const;

 private:
  std::string live_prefix(TimePoint now, int rank);
  std::string make_prefix(const RankSet& ranks) const;
  const std::string& prefix_of(int rank);
  void put(const std::string& prefix, TimePoint read_at, std::string_view line);
  void end_line(std::string_view line, bool continued);
  const std::string& time_stamp(TimePoint read_at);
  void remember(const RankSet& ranks, std::string_view line, bool whole);

  const Plan& whole_;
  const OutputPlan& plan_;
  const LocalRanks& local_ranks_;
  const std::string host_;
  OutputSink& sink_;
  const bool color_;
  std::vector<std::string> prefixes_;  // by rank
  bool draws_;
  LiveBars bars_;
  std::optional<int> open_;  // the rank of an unfinished line at the end of the sink
  TimePoint stamped_{};
  std::string stamp_;
  struct Shown {
    RankSet ranks;
    std::string line;
  };
  static constexpr std::size_t kRemembered = 10;
  std::deque<Shown> shown_;  // the last lines on a terminal
};

}  // namespace dlaunch
