// OutputTails: the last lines that the workers of a host have written to their stdout and stderr,
// by slot, for dlaunchctl tail. It keeps the bytes as they come, and looks for lines only when
// somebody asks. Pure: it takes bytes, and passes lines on.
//
// A program that asks gets the lines that are kept, and for a while those that come. It misses a
// line that comes too fast; its worker never waits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/plan/plan.h"

namespace dlaunch {

// Of one slot.
class OutputTail {
 public:
  struct Line {
    OutputStream stream = OutputStream::out;
    std::uint64_t end = 0;  // the position after it
    std::string text;
  };
  static constexpr std::size_t kKept = 32 << 10;
  static constexpr std::size_t kMostOfLine = 2000;  // bytes; the rest of a longer line is left out

  void append(OutputStream stream, std::string_view bytes);
  // The worker has ended: an unfinished line is a line.
  void end();
  // The position after all bytes so far.
  std::uint64_t position() const { return begin_ + kept_; }
  // The lines that have ended after that position, of those that are kept.
  std::vector<Line> lines_after(std::uint64_t position) const;
  // So many bytes after that position are no longer kept.
  std::uint64_t lost_after(std::uint64_t position) const {
    return begin_ > position ? begin_ - position : 0;
  }

 private:
  struct Piece {
    OutputStream stream;
    std::string bytes;
  };
  static constexpr std::size_t kPiece = 4 << 10;

  std::deque<Piece> pieces_;
  std::uint64_t begin_ = 0;  // the position of the first byte that is kept
  std::size_t kept_ = 0;
};

class OutputTails {
 public:
  static constexpr Duration kTogether = std::chrono::milliseconds(50);  // lines that come share
  // lost: so many bytes before the lines came too fast.
  using Tell = std::function<void(int slot, std::uint64_t lost, std::vector<OutputTail::Line>)>;
  explicit OutputTails(Tell tell) : tell_(std::move(tell)) {}

  void append(TimePoint now, int slot, OutputStream stream, std::string_view bytes);
  // The slot's worker has ended.
  void end(TimePoint now, int slot);
  // Passes on the slot's lines that are kept, at once and also if there are none, and those that
  // come for that time. again: only those that come.
  void ask(TimePoint now, int slot, Duration lasts, bool again);
  std::optional<TimePoint> deadline() const;
  void on_clock(TimePoint now);

 private:
  struct Asked {
    TimePoint until{};
    std::uint64_t told = 0;             // the position up to which lines were passed on
    std::optional<TimePoint> due = {};  // there may be more lines
  };
  void pass_on(int slot, Asked& asked);

  const Tell tell_;
  std::map<int, OutputTail> tails_;
  std::map<int, Asked> asked_;
};

}  // namespace dlaunch
