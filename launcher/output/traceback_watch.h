// TracebackWatch: finds, in what a worker writes to stderr, the last exception that it tells of,
// and when: Python's "Traceback (most recent call last)", and "terminate called after throwing" of
// C++. It keeps the end of it apart from the tail of stderr, which may not reach back so far: a
// traceback can be long, and much can follow it. Pure: bytes and the time go in.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/traceback.h"

namespace dlaunch {

class TracebackWatch {
 public:
  void feed(TimePoint now, std::string_view bytes);
  // What comes from now on does not count.
  void stop();
  std::optional<Traceback> last() const;

 private:
  static constexpr std::size_t kLines = 8, kLinesBehind = 4;
  static constexpr std::size_t kMaxLine = 1 << 10;

  enum class At { outside, frames, behind };
  void take_line(TimePoint now, std::string_view line);
  void take_frame(std::string_view line);
  void take_behind(std::string_view line);
  void begin(TimePoint now, std::string_view line, At at);
  bool has_prefix(std::string_view line) const;

  std::string line_;       // begun, and not ended yet; no more than kMaxLine of it
  bool returned_ = false;  // it ended in "\r" so far
  std::optional<Traceback> last_;
  At at_ = At::outside;
  std::string prefix_;  // of its first line, as "[rank1]: "
  bool seen_frame_ = false;
  bool of_no_matter_ = false;  // Python goes on to say what it ignores
  bool stopped_ = false;
};

}  // namespace dlaunch
