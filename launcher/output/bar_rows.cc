#include "launcher/output/bar_rows.h"

#include <algorithm>

#include "base/text.h"
#include "launcher/output/terminal_text.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxSequence = 16;  // bytes of a control sequence that we inspect

bool ends_text(char c) { return c == '\r' || c == '\n' || c == '\x1b'; }

// The number in "\x1b[3A"; without one it is 1.
std::size_t count_in(std::string_view parameters) {
  std::size_t count = 0;
  for (const char digit : parameters) {
    if (digit < '0' || digit > '9') return 1;
    count = std::min<std::size_t>(10 * count + static_cast<std::size_t>(digit - '0'), 1000);
  }
  return std::max<std::size_t>(count, 1);
}

}  // namespace

std::string_view BarRows::newest(const Row& row) {
  return row.bar && shows_nothing(row.text) ? row.state : row.text.empty() ? row.state : row.text;
}

// Keeps the row's text when the cursor leaves it; the next text there overwrites it.
void BarRows::keep_state(Row& row) {
  const auto last = row.text.find_last_not_of('\b');  // Keras moves back with these
  row.text.resize(last == std::string::npos ? 0 : last + 1);
  if (row.bar && shows_nothing(row.text)) {
    row.wiped = row.wiped || !row.text.empty();
  } else if (!row.text.empty()) {
    row.state.swap(row.text);
    row.wiped = false;
  }
  row.text.clear();
}

bool BarRows::has_bar() const {
  return std::ranges::any_of(rows_, [](const Row& row) { return row.bar; });
}

bool BarRows::active() const { return rows_.size() > 1 || rows_[0].bar || !tail_.empty(); }

void BarRows::feed(TimePoint now, std::string_view bytes, const Emit& emit) {
  std::string joined;
  if (!tail_.empty()) {
    joined = std::exchange(tail_, {}).append(bytes);
    bytes = joined;
  }
  while (!bytes.empty()) {
    const auto* const end = std::ranges::find_if(bytes, ends_text);
    const auto size = static_cast<std::size_t>(end - bytes.begin());
    put(bytes.substr(0, size), emit);
    bytes.remove_prefix(size);
    if (bytes.empty()) break;
    const std::size_t used = take_control(now, bytes, emit);
    if (used == 0) tail_ = bytes;
    bytes.remove_prefix(used == 0 ? bytes.size() : used);
  }
  ++version_;
}

// Returns how many bytes were taken; 0: it needs the following bytes first.
std::size_t BarRows::take_control(TimePoint now, std::string_view bytes, const Emit& emit) {
  if (bytes[0] == '\n') {
    go_down(now, emit);
    return 1;
  }
  if (bytes[0] == '\x1b') return take_sequence(bytes, emit);
  const bool plain = !rows_[at_].bar;
  if (plain && bytes.size() == 1) return 0;
  if (plain && bytes[1] == '\n') {  // "\r\n" ends a line as "\n" does
    go_down(now, emit);
    return 2;
  }
  overwrite();
  return 1;
}

// Only moving up is followed, and only if there is a bar; colours and the like are part of the
// text.
std::size_t BarRows::take_sequence(std::string_view bytes, const Emit& emit) {
  const auto size = control_sequence(bytes.substr(0, kMaxSequence));
  if (!size && bytes.size() < kMaxSequence) return 0;
  const std::string_view sequence = bytes.substr(0, size.value_or(1));
  const char final_byte = sequence.back();
  const bool drawing = rows_.size() > 1 || rows_[0].bar;
  if (drawing && sequence.size() > 2 && (final_byte == 'A' || final_byte == 'F')) {
    go_up(count_in(sequence.substr(2, sequence.size() - 3)));
  } else {
    put(sequence, emit);
  }
  return sequence.size();
}

void BarRows::put(std::string_view text, const Emit& emit) {
  if (text.empty()) return;
  written_ = true;
  rows_[at_].gone = false;
  rows_[at_].text.append(text);
  if (rows_[at_].text.size() <= kMaxText) return;
  while (at_ > 0) give_front(emit);
  std::string& whole = rows_[0].text;
  while (whole.size() > kMaxText) {
    const std::size_t cut = cut_before(whole, kMaxText);
    emit(std::string_view(whole).substr(0, cut), true);
    whole.erase(0, cut);
  }
}

void BarRows::overwrite() {
  Row& row = rows_[at_];
  row.bar = written_ = true;
  row.gone = false;
  keep_state(row);
}

void BarRows::go_down(TimePoint now, const Emit& emit) {
  Row& row = rows_[at_];
  if (!row.bar && rows_.size() == 1) {  // an ordinary line
    emit(row.text, false);
    row.text.clear();
    return enter(true);
  }
  const bool line = !row.bar && written_ && !shows_nothing(row.text);
  keep_state(row);
  row.left = now;
  if (at_ + 1 == rows_.size()) rows_.emplace_back();
  ++at_;
  enter(true);
  while (at_ > 0 && (line || rows_.size() > kMaxRows)) give_front(emit);
}

void BarRows::go_up(std::size_t rows) {
  Row& row = rows_[at_];
  keep_state(row);
  if (row.wiped) {
    row = Row();
    row.gone = true;
  }
  // Above the rows that we know: another process draws below the bar of this one.
  while (rows > at_ && rows_.size() < kMaxRows) {
    rows_.emplace_front().gone = true;
    ++at_;
  }
  at_ -= std::min(rows, at_);
  while (rows_.size() > at_ + 1 && newest(rows_.back()).empty()) rows_.pop_back();
  enter(false);
}

void BarRows::enter(bool from_above) {
  Row& row = rows_[at_];
  written_ = false;
  from_above_ = from_above;
  row.wiped = false;
  if (newest(row).empty()) row.bar = false;
}

// Call it only if there is another row below it.
void BarRows::give_front(const Emit& emit) {
  const Row row = std::move(rows_.front());
  rows_.pop_front();
  if (at_ > 0) --at_;
  const auto line = newest(row);
  const bool known = row.bar && !row.given.empty() && line == row.given;
  if (!row.gone && !known) emit(line, false);
  if (rows_.size() > 1 || rows_[0].bar) return;
  rows_[0].text.insert(0, std::exchange(rows_[0].state, {}));  // it is plain text again
}

std::optional<TimePoint> BarRows::deadline() const {
  return at_ > 0 ? std::optional(rows_[0].left + kSettle) : std::nullopt;
}

void BarRows::settle(TimePoint now, const Emit& emit) {
  const bool any = at_ > 0 && now >= rows_[0].left + kSettle;
  while (at_ > 0 && now >= rows_[0].left + kSettle) give_front(emit);
  // An older state of a nested bar; its last state was drawn in the row above.
  if (any && at_ == 0 && from_above_ && !written_) rows_[0] = Row();
  if (any) ++version_;
}

void BarRows::finish(const Emit& emit) {
  const std::string tail = std::exchange(tail_, {});
  tail == "\r" ? overwrite() : put(tail, emit);
  if (at_ > 0 && from_above_ && !written_) rows_[at_].gone = true;
  std::size_t index = 0;
  const std::size_t cursor = at_;
  for (rows_.emplace_back(); rows_.size() > 1; ++index) {
    if (index >= cursor && newest(rows_.front()).empty()) rows_.front().gone = true;
    give_front(emit);
  }
  at_ = 0;
  enter(false);
  ++version_;
}

std::vector<std::string> BarRows::rows() const {
  std::vector<std::string> shown;
  if (!has_bar()) return shown;
  for (const Row& row : rows_) {
    if (!shows_nothing(newest(row))) shown.emplace_back(newest(row));
  }
  return shown;
}

bool BarRows::has_news() const {
  return std::ranges::any_of(rows_, [](const Row& row) {
    return row.bar && !row.gone && !shows_nothing(newest(row)) && newest(row) != row.given;
  });
}

void BarRows::give_states(const Emit& emit) {
  for (Row& row : rows_) {
    const auto state = newest(row);
    if (!row.bar || row.gone || shows_nothing(state) || state == row.given) continue;
    row.given = state;
    emit(row.given, false);
  }
}

}  // namespace dlaunch
