// BarRows follows progress bars, which a worker draws with carriage returns. It knows the last few
// rows of what a terminal would show, and which of them are final. Pure.
//
// - Text before a "\r" is overwritten by the text behind it: a state of a bar. A state that only
//   blanks the row out does not count.
// - "\n" leaves the row below. The row of a bar is final when the cursor has not come back within
//   kSettle, or when an ordinary line follows: nested bars of tqdm go down with "\n" and come back
//   with "\x1b[A".
// - A row below that is blanked out before the cursor goes up again is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace dlaunch {

class BarRows {
 public:
  static constexpr Duration kSettle = std::chrono::milliseconds(100);
  static constexpr std::size_t kMaxRows = 16;       // with more, the topmost is final
  static constexpr std::size_t kMaxText = 1 << 20;  // of a row; longer text comes in pieces
  // A final line, or a piece of one; the view is valid during the call.
  using Emit = std::function<void(std::string_view line, bool continued)>;

  // Whether some row is part of a bar, or may still become one; else all text is plain.
  bool active() const;
  // Sets the text of the current row. Call it only while not active.
  void begin(std::string text) { rows_[0].text = std::move(text); }
  // Returns the rest of the plain text and forgets it.
  std::string take_plain() { return std::exchange(rows_[0].text, {}); }

  void feed(TimePoint now, std::string_view bytes, const Emit& emit);
  // Emits the rows that are final because their time is over.
  void settle(TimePoint now, const Emit& emit);
  std::optional<TimePoint> deadline() const;
  // The end of the stream: emits all rows.
  void finish(const Emit& emit);

  // What a terminal would show, from top to bottom; empty if no bar is drawn.
  std::vector<std::string> rows() const;
  // Changes when the result of rows() changes.
  std::uint64_t version() const { return version_; }
  // Some row has another state than the last emitted one.
  bool has_news() const;
  // Emits those states. A row that ends in the last emitted state is not emitted again.
  void give_states(const Emit& emit);

 private:
  struct Row {
    std::string state;  // the last one that was finished
    std::string text;   // since the last "\r"
    std::string given;  // by give_states
    bool bar = false;   // it had a "\r"
    bool wiped = false;
    bool gone = false;  // blanked out, or never written
    TimePoint left{};   // when the cursor went down from it
  };
  static std::string_view newest(const Row& row);
  static void keep_state(Row& row);

  std::size_t take_control(TimePoint now, std::string_view bytes, const Emit& emit);
  std::size_t take_sequence(std::string_view bytes, const Emit& emit);
  void put(std::string_view text, const Emit& emit);
  void overwrite();
  void go_down(TimePoint now, const Emit& emit);
  void go_up(std::size_t rows);
  void enter(bool from_above);
  void give_front(const Emit& emit);
  bool has_bar() const;

  std::deque<Row> rows_{1};
  std::size_t at_ = 0;       // the cursor's row
  bool written_ = false;     // text was written since the cursor came to it
  bool from_above_ = false;  // the cursor came from above
  std::string tail_;         // an incomplete control sequence
  std::uint64_t version_ = 0;
};

}  // namespace dlaunch
