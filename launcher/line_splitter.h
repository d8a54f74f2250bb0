// LineSplitter cuts one worker stream into the lines that are shown. Pure: bytes and the time go
// in, lines come out through a callback, without a copy where a line lies whole in the input.
//
// A line longer than kMaxLine is given in pieces of that size, all but the last marked as
// continued.
// "\r\n" ends a line like "\n". A progress bar (text overwritten after "\r") is tamed: of its
// states only the newest is given, at most one a second, and always the last.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace dlaunch {

class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = 1 << 20;
  static constexpr Duration kProgressInterval = std::chrono::seconds(1);

  // emit(std::string_view line, bool continued)
  template <class Emit>
  void feed(TimePoint now, std::string_view bytes, Emit emit) {
    while (!bytes.empty()) {
      const void* newline = std::memchr(bytes.data(), '\n', bytes.size());
      if (newline == nullptr) break;
      const auto size = static_cast<std::size_t>(static_cast<const char*>(newline) - bytes.data());
      end_line(bytes.substr(0, size), emit);
      bytes.remove_prefix(size + 1);
    }
    if (!bytes.empty()) keep(now, bytes, emit);
  }

  // The stream has ended: what stands there without a newline is a line, too.
  template <class Emit>
  void finish(Emit emit) {
    if (!partial_.empty()) end_line({}, emit);
  }

  // When show_progress is to be called; nullopt: never.
  std::optional<TimePoint> deadline() const {
    return waiting_ ? std::optional(shown_at_ + kProgressInterval) : std::nullopt;
  }
  template <class Emit>
  void show_progress(TimePoint now, Emit emit) {
    if (!waiting_) return;
    waiting_ = false;
    shown_at_ = now;
    shown_ = std::string(newest_state(partial_));
    if (!shown_.empty()) emit(std::string_view(shown_), false);
  }

 private:
  // What a terminal would show of a line: the text behind the last carriage return that has any.
  static std::string_view newest_state(std::string_view line) {
    while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const auto at = line.rfind('\r');
    return at == std::string_view::npos ? line : line.substr(at + 1);
  }

  template <class Emit>
  void end_line(std::string_view rest, Emit emit) {
    if (partial_.empty() && std::memchr(rest.data(), '\r', rest.size()) == nullptr) {
      return emit_whole(rest, emit);
    }
    partial_.append(rest);
    const auto line = newest_state(partial_);
    // A bar's last state has perhaps been shown already.
    if (shown_.empty() || line != shown_) emit_whole(line, emit);
    partial_.clear();
    shown_.clear();
    waiting_ = false;
  }

  template <class Emit>
  void emit_whole(std::string_view line, Emit emit) {
    for (; line.size() > kMaxLine; line.remove_prefix(kMaxLine)) {
      emit(line.substr(0, kMaxLine), true);
    }
    emit(line, false);
  }

  template <class Emit>
  void keep(TimePoint now, std::string_view bytes, Emit emit) {
    partial_.append(bytes);
    if (std::memchr(bytes.data(), '\r', bytes.size()) != nullptr) {
      // Only the newest state matters from here on; the bar may run for hours.
      const auto state = newest_state(partial_);
      if (state.size() < partial_.size()) partial_ = std::string(state) + "\r";
      waiting_ = true;
      if (now >= shown_at_ + kProgressInterval) show_progress(now, emit);
    }
    for (; partial_.size() > kMaxLine; partial_.erase(0, kMaxLine)) {
      emit(std::string_view(partial_).substr(0, kMaxLine), true);
    }
  }

  std::string partial_;
  std::string shown_;     // the progress state last given
  TimePoint shown_at_{};  // and when
  bool waiting_ = false;  // a newer one is there
};

}  // namespace dlaunch
