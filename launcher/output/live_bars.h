// LiveBars: the progress bars at the bottom of a terminal, below all ordinary lines, drawn over in
// place. Pure: it returns the bytes that change the terminal. Where no bar is, the job's own line
// stands; an urgent one takes the place of the bars.
//
// A row is cut to the terminal's width, so that it stays one row. Where there are more rows than
// the terminal has, the last one says how many are missing.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

class LiveBars {
 public:
  static constexpr Duration kRedraw = std::chrono::milliseconds(100);  // at most that often

  struct Window {
    int columns = 80, rows = 24;
  };
  // The owner of a bar. Low ranks come first, spares last.
  struct Who {
    int rank = 0;  // -1: a spare
    int slot = 0;
    OutputStream stream = OutputStream::out;
  };
  using Prefix = std::function<std::string(int rank)>;

  // all: show the bars of all workers; else only of the first that has one.
  explicit LiveBars(bool all) : all_(all) {}

  // Sets the worker's bars, from top to bottom; empty: it no longer has any.
  void set(Who who, std::vector<std::string> rows);
  // Sets the job's own line, which has no prefix; "": there is none.
  void set_own(std::string row, bool urgent);

  // When to call draw(); nullopt: the drawn rows are up to date.
  std::optional<TimePoint> deadline() const;
  // Erases the rows, before other bytes are written; "": there are none.
  std::string erase(Window window);
  // Draws the present rows, unless that was done just now. prefix: before each row.
  std::string draw(TimePoint now, Window window, const Prefix& prefix);
  // Keeps the drawn rows where they are: the cursor is below them.
  void leave() { drawn_.clear(); }
  // Draws nothing before then.
  void put_off(TimePoint until) { next_ = until; }

 private:
  using Key = std::tuple<bool, int, int, bool>;  // spare, rank, slot, stderr
  bool own_shown() const { return !own_.empty() && (own_urgent_ || bars_.empty()); }
  std::vector<std::string> lines(Window window, const Prefix& prefix) const;
  std::string to_top(Window window) const;

  const bool all_;
  std::map<Key, std::vector<std::string>> bars_;
  std::string own_;
  bool own_urgent_ = false;
  std::vector<int> drawn_;  // columns of each row that stands there
  bool changed_ = false;    // since the last draw()
  TimePoint next_ = TimePoint::min();
};

}  // namespace dlaunch
