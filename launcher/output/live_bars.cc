#include "launcher/output/live_bars.h"

#include <algorithm>

#include <fmt/format.h>

#include "launcher/output/terminal_text.h"

namespace dlaunch {
namespace {

constexpr std::string_view kEraseBelow = "\x1b[J", kEraseRest = "\x1b[K";

}  // namespace

void LiveBars::set(Who who, std::vector<std::string> rows) {
  const Key key{who.rank < 0, who.rank, who.slot, who.stream == OutputStream::err};
  const auto it = bars_.find(key);
  if (it == bars_.end() ? rows.empty() : it->second == rows) return;
  changed_ = changed_ || all_ || it == bars_.end() || it == bars_.begin();
  if (rows.empty()) {
    bars_.erase(it);
  } else if (it != bars_.end()) {
    it->second = std::move(rows);
  } else {
    changed_ = bars_.emplace(key, std::move(rows)).first == bars_.begin() || changed_;
  }
}

void LiveBars::set_own(std::string row, bool urgent) {
  if (row == own_ && urgent == own_urgent_) return;
  const bool was_shown = own_shown();
  own_ = std::move(row);
  own_urgent_ = urgent;
  changed_ = changed_ || was_shown || own_shown();
}

std::optional<TimePoint> LiveBars::deadline() const {
  const bool missing = drawn_.empty() && (own_shown() || !bars_.empty());
  return changed_ || missing ? std::optional(next_) : std::nullopt;
}

std::vector<std::string> LiveBars::lines(Window window, const Prefix& prefix) const {
  std::vector<std::string> all;
  // The last column stays free: behind it some terminals begin a new row at once.
  const int width = std::max(window.columns - 1, 1);
  if (own_shown()) return {fit_columns(own_, width)};
  for (const auto& [key, rows] : bars_) {
    const std::string before = prefix(std::get<1>(key));
    for (const std::string& row : rows) all.push_back(before + row);
    if (!all_) break;
  }
  const auto room = static_cast<std::size_t>(std::max(window.rows - 1, 1));
  if (all.size() > room) {
    const std::size_t missing = all.size() - room + 1;
    all.resize(room);
    all.back() = fmt::format("… {} more progress bars", missing);
  }
  for (std::string& line : all) line = fit_columns(line, width);
  return all;
}

// From the end of the last row to the beginning of the first. Rows wrap when the user makes the
// terminal narrower.
std::string LiveBars::to_top(Window window) const {
  int rows = -1;
  for (const int columns : drawn_)
    rows += std::max(1, (columns + window.columns - 1) / window.columns);
  return rows > 0 ? fmt::format("\r\x1b[{}A", rows) : "\r";
}

std::string LiveBars::erase(Window window) {
  if (drawn_.empty()) return "";
  std::string bytes = to_top(window).append(kEraseBelow);
  drawn_.clear();
  return bytes;
}

std::string LiveBars::draw(TimePoint now, Window window, const Prefix& prefix) {
  if (!drawn_.empty() && (!changed_ || now < next_)) return "";
  const auto all = lines(window, prefix);
  if (all.empty()) {
    changed_ = false;
    return erase(window);
  }
  std::string bytes = drawn_.empty() ? "" : to_top(window);
  drawn_.clear();
  for (const std::string& line : all) {
    if (!drawn_.empty()) bytes += '\n';
    bytes.append(line).append(&line == &all.back() ? kEraseBelow : kEraseRest);
    drawn_.push_back(columns_of(line));
  }
  changed_ = false;
  next_ = deadline_after(now, kRedraw);
  return bytes;
}

}  // namespace dlaunch
