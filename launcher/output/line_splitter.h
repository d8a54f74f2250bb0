// LineSplitter cuts one worker stream into the lines that are shown. Pure: bytes and the time go
// in, lines come out through a callback, without a copy if the input contains the whole line.
//
// - "\r\n" ends a line like "\n".
// - A line longer than kMaxLine comes in pieces of about that size (a UTF-8 character is not cut in
//   two), all but the last marked as continued.
// - A progress bar (text overwritten after "\r", see bar_rows.h) gives one line, its last state,
//   and before that its newest state as often as its pace says. bar() returns its present state.
// - Text without a newline at the end of the stream is a line, too.
// - Where a worker may ask the user something, text without a newline for kUnfinishedDelay is
//   emitted as it is; what follows is then the rest of that line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "launcher/output/bar_rows.h"

namespace dlaunch {

// When the states of a bar are emitted as lines, besides the last one.
struct BarPace {
  Duration first = Duration::max();  // after the bar began; max: never
  Duration every = Duration::max();  // and then at most that often
};

class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = BarRows::kMaxText;
  static constexpr Duration kUnfinishedDelay = std::chrono::milliseconds(100);

  // emit(std::string_view line, bool continued); the view is valid during the call.
  template <class Emit>
  void feed(TimePoint now, std::string_view bytes, Emit emit) {
    const bool returns = std::memchr(bytes.data(), '\r', bytes.size()) != nullptr;
    if (returns || bars_.active()) return feed_bars(now, bytes, emit);
    while (!bytes.empty()) {
      const void* newline = std::memchr(bytes.data(), '\n', bytes.size());
      if (newline == nullptr) break;
      const auto size = static_cast<std::size_t>(static_cast<const char*>(newline) - bytes.data());
      end_line(bytes.substr(0, size), emit);
      bytes.remove_prefix(size + 1);
    }
    if (!bytes.empty()) keep(now, bytes, emit);
  }

  template <class Emit>
  void finish(Emit emit) {
    if (!partial_.empty()) end_line({}, emit);
    bars_.finish(whole(emit));
  }

  // Whether lines may be emitted unfinished.
  void set_asks(bool asks) { asks_ = asks; }
  // Returns an unfinished line that is due, and does not emit it again. "": none.
  std::string take_unfinished(TimePoint now) {
    return is_unfinished() && now >= unfinished_at_ ? std::exchange(partial_, {}) : std::string();
  }

  void set_pace(BarPace pace) { pace_ = pace; }
  // The present rows of the bars; empty: there is no bar. version: changes with them.
  std::vector<std::string> bar() const { return bars_.rows(); }
  std::uint64_t bar_version() const { return bars_.version(); }

  // When take_unfinished and show_progress are to be called; nullopt: never.
  std::optional<TimePoint> deadline() const {
    TimePoint next = std::min(bars_.deadline().value_or(kNever), next_state().value_or(kNever));
    if (is_unfinished()) next = std::min(next, unfinished_at_);
    return next == kNever ? std::nullopt : std::optional(next);
  }
  // Emits the bars that have ended meanwhile, and, only if `states`, the states that are due.
  template <class Emit>
  void show_progress(TimePoint now, bool states, Emit emit) {
    if (bars_.active()) bars_.settle(now, whole(emit));
    if (next_state().value_or(kNever) <= now) {
      if (states) bars_.give_states(whole(emit));
      next_state_ = deadline_after(now, pace_.every);
    }
    end_bars(now);
  }

 private:
  bool is_unfinished() const { return asks_ && !partial_.empty(); }
  bool gives_states() const { return pace_.first != Duration::max(); }

  std::optional<TimePoint> next_state() const {
    const bool due = gives_states() && drawn_ && bars_.has_news();
    return due ? std::optional(next_state_) : std::nullopt;
  }

  template <class Emit>
  static auto whole(Emit& emit) {
    return [&emit](std::string_view line, bool continued) {
      continued ? emit(line, true) : emit_whole(line, emit);
    };
  }

  template <class Emit>
  void feed_bars(TimePoint now, std::string_view bytes, Emit emit) {
    if (!bars_.active()) bars_.begin(std::exchange(partial_, {}));
    bars_.feed(now, bytes, whole(emit));
    const bool drawn = bars_.has_news() || (drawn_ && bars_.active());
    if (drawn && !drawn_ && gives_states()) {
      next_state_ = std::max(next_state_, deadline_after(now, pace_.first));
    }
    drawn_ = drawn;
    if (pace_.first == Duration::zero()) return show_progress(now, true, emit);
    end_bars(now);
  }

  // If no bar is left, the rest of a line is plain text again.
  void end_bars(TimePoint now) {
    if (bars_.active()) return;
    drawn_ = false;
    partial_ = bars_.take_plain();
    if (asks_) unfinished_at_ = now + kUnfinishedDelay;
  }

  template <class Emit>
  void end_line(std::string_view rest, Emit emit) {
    if (partial_.empty()) return emit_whole(rest, emit);
    partial_.append(rest);
    emit_whole(partial_, emit);
    partial_.clear();
    // One very long line must not hold its memory for the rest of the job.
    if (partial_.capacity() > (64 << 10)) partial_.shrink_to_fit();
  }

  template <class Emit>
  static void emit_whole(std::string_view line, Emit& emit) {
    while (line.size() > kMaxLine) {
      const std::size_t cut = cut_before(line, kMaxLine);
      emit(line.substr(0, cut), true);
      line.remove_prefix(cut);
    }
    emit(line, false);
  }

  template <class Emit>
  void keep(TimePoint now, std::string_view bytes, Emit emit) {
    partial_.append(bytes);
    if (asks_) unfinished_at_ = now + kUnfinishedDelay;
    while (partial_.size() > kMaxLine) {
      const std::size_t cut = cut_before(partial_, kMaxLine);
      emit(std::string_view(partial_).substr(0, cut), true);
      partial_.erase(0, cut);
    }
  }

  std::string partial_;  // of the line; "" while there are bars
  BarRows bars_;
  bool drawn_ = false;  // a bar has had a state
  BarPace pace_;
  TimePoint next_state_ = TimePoint::min();
  bool asks_ = false;
  TimePoint unfinished_at_ = TimePoint::min();
};

}  // namespace dlaunch
