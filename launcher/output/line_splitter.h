// LineSplitter cuts one worker stream into the lines that are shown. Pure: bytes and the time go
// in, lines come out through a callback, without a copy where a line lies whole in the input.
//
// - "\r\n" ends a line like "\n".
// - A line longer than kMaxLine comes in pieces of about that size (a UTF-8 character is not cut in
//   two), all but the last marked as continued.
// - A progress bar (text overwritten after "\r") is tamed: of its states only the newest is given,
//   at most one in kProgressInterval, and the last one always. A state that only blanks the bar out
//   is none.
// - What stands without a newline at the end of the stream is a line, too.
// - Where somebody may be asked something, what stands without a newline for kUnfinishedDelay is
//   given as it is; what follows is then the rest of that line.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace dlaunch {

class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = 1 << 20;
  static constexpr Duration kProgressInterval = std::chrono::seconds(1);
  static constexpr Duration kUnfinishedDelay = std::chrono::milliseconds(100);

  // emit(std::string_view line, bool continued); the view is valid during the call.
  template <class Emit>
  void feed(TimePoint now, std::string_view bytes, Emit emit) {
    const bool returns = std::memchr(bytes.data(), '\r', bytes.size()) != nullptr;
    while (!bytes.empty()) {
      const void* newline = std::memchr(bytes.data(), '\n', bytes.size());
      if (newline == nullptr) break;
      const auto size = static_cast<std::size_t>(static_cast<const char*>(newline) - bytes.data());
      end_line(bytes.substr(0, size), returns, emit);
      bytes.remove_prefix(size + 1);
    }
    if (!bytes.empty()) keep(now, bytes, returns, emit);
  }

  template <class Emit>
  void finish(Emit emit) {
    if (!partial_.empty() || waiting_) end_line({}, false, emit);
  }

  // Whether lines may be given unfinished.
  void set_asks(bool asks) { asks_ = asks; }
  // It is due: what there is of the line, which is not given again. "": none.
  std::string take_unfinished(TimePoint now) {
    return is_unfinished() && now >= unfinished_at_ ? std::exchange(partial_, {}) : std::string();
  }

  // When show_progress, or take_unfinished, is to be called; nullopt: never.
  std::optional<TimePoint> deadline() const {
    if (is_unfinished()) return unfinished_at_;
    return waiting_ ? std::optional(next_progress_) : std::nullopt;
  }
  template <class Emit>
  void show_progress(TimePoint now, Emit emit) {
    if (!waiting_) return;
    waiting_ = false;
    const std::string_view state = newest_state();
    if (state == shown_) return;
    next_progress_ = now + kProgressInterval;
    shown_ = state;
    emit(std::string_view(shown_), false);
  }

 private:
  bool is_unfinished() const { return asks_ && !bar_ && !partial_.empty(); }

  // Nothing that a terminal would show: spaces and control sequences such as "erase the line".
  static bool is_blank(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') continue;
      if (text[i] != '\x1b' || i + 1 >= text.size() || text[i + 1] != '[') return false;
      for (i += 2; i < text.size() && (text[i] < '@' || text[i] > '~'); ++i) {
      }
    }
    return true;
  }

  static std::size_t cut_before(std::string_view text, std::size_t at) {
    for (std::size_t back = 0; back < 4; ++back) {
      if ((static_cast<unsigned char>(text[at - back]) & 0xc0) != 0x80) return at - back;
    }
    return at;  // no UTF-8
  }

  // Moves what `text` has before its last "\r" into the bar; returns the rest.
  std::string_view overwrite(std::string_view text) {
    for (std::size_t end; (end = text.find('\r')) != std::string_view::npos;) {
      partial_.append(text.substr(0, end));
      if (!is_blank(partial_)) state_ = partial_;
      partial_.clear();
      bar_ = true;
      text.remove_prefix(end + 1);
    }
    return text;
  }

  std::string_view newest_state() const {
    return is_blank(partial_) ? std::string_view(state_) : std::string_view(partial_);
  }

  template <class Emit>
  void end_line(std::string_view rest, bool returns, Emit emit) {
    if (returns) rest = overwrite(rest);
    if (!bar_ && partial_.empty()) return emit_whole(rest, emit);
    partial_.append(rest);
    if (!bar_) {
      emit_whole(partial_, emit);
    } else if (const auto line = newest_state(); shown_.empty() || line != shown_) {
      emit_whole(line, emit);  // else the last state has been shown already
    }
    bar_ = waiting_ = false;
    for (std::string* text : {&partial_, &state_, &shown_}) forget(*text);
  }

  template <class Emit>
  void emit_whole(std::string_view line, Emit emit) {
    while (line.size() > kMaxLine) {
      const std::size_t cut = cut_before(line, kMaxLine);
      emit(line.substr(0, cut), true);
      line.remove_prefix(cut);
    }
    emit(line, false);
  }

  template <class Emit>
  void keep(TimePoint now, std::string_view bytes, bool returns, Emit emit) {
    if (returns) bytes = overwrite(bytes);
    partial_.append(bytes);
    if (asks_) unfinished_at_ = now + kUnfinishedDelay;
    if (bar_) {
      waiting_ = newest_state() != shown_;
      if (now >= next_progress_) show_progress(now, emit);
    }
    while (partial_.size() > kMaxLine) {
      const std::size_t cut = cut_before(partial_, kMaxLine);
      emit(std::string_view(partial_).substr(0, cut), true);
      partial_.erase(0, cut);
    }
  }

  // One very long line must not hold its memory for the rest of the job.
  static void forget(std::string& text) {
    text.clear();
    if (text.capacity() > (64 << 10)) text.shrink_to_fit();
  }

  std::string partial_;   // of the line, since its last "\r"
  std::string state_;     // the last finished state of a bar
  std::string shown_;     // the state last given
  bool bar_ = false;      // a "\r" stood in this line
  bool waiting_ = false;  // a newer state is there than the one given
  TimePoint next_progress_ = TimePoint::min();
  bool asks_ = false;
  TimePoint unfinished_at_ = TimePoint::min();
};

}  // namespace dlaunch
