// TracebackWatch: finds the last exception, and its time, in what a worker writes to stderr. It
// knows Python's "Traceback (most recent call last)" with chains, exception groups, notes and the
// form of a SyntaxError without a traceback, and "terminate called after throwing" of C++. It keeps
// the end of the traceback apart from the tail of stderr, which may not reach back so far: a
// traceback can be long, and much can follow it. Pure: bytes and the time go in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/traceback.h"

namespace dlaunch {

// The line that Python prints between two exceptions of a chain; a prefix may stand before it.
bool is_chain_line(std::string_view line);

class TracebackWatch {
 public:
  void feed(TimePoint now, std::string_view bytes);
  // Ignores further input.
  void stop();
  std::optional<Traceback> last() const;
  // When the last one began; nullopt: there is none.
  std::optional<TimePoint> begun() const;

 private:
  static constexpr std::size_t kLines = 8, kLinesBehind = 4, kGroupLines = 12;
  static constexpr std::size_t kMaxLine = 1 << 10;

  // The state after the line before: outside, in frames, in the possible message of an exception,
  // in the tree of an exception group, at the end of an exception with another one to follow, or in
  // a possible SyntaxError.
  enum class At { outside, frames, behind, group, chained, syntax };
  void take_line(TimePoint now, std::string_view line);
  bool begins(TimePoint now, std::string_view line);
  void take_frame(std::string_view line);
  void take_behind(std::string_view line);
  void take_group(std::string_view line);
  void take_syntax(std::string_view line);
  void begin(TimePoint now, std::string_view line, At at);
  bool has_prefix(std::string_view line) const;
  std::string_view text_of(std::string_view line) const;

  std::string line_;       // the unfinished line, at most kMaxLine of it
  bool returned_ = false;  // it ends in "\r" so far
  std::optional<Traceback> last_;
  At at_ = At::outside;
  std::string prefix_;  // of its first line, such as "[rank1]: "
  bool seen_frame_ = false;
  bool of_no_matter_ = false;         // Python then says that it ignores the exception
  std::vector<std::string> pending_;  // of a group: the last frames; or a SyntaxError's first lines
  std::size_t left_out_ = 0;          // lines of a group
  std::size_t strays_ = 0;            // consecutive lines that are not of the group
  TimePoint syntax_begun_{};
  bool stopped_ = false;
};

}  // namespace dlaunch
