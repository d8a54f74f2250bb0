#include "launcher/output/traceback_watch.h"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

constexpr std::string_view kPython = "Traceback (most recent call last)";
constexpr std::string_view kCpp = "terminate called after throwing";
constexpr std::string_view kCppMessage = "  what():";
constexpr std::string_view kIgnored = "Exception ignored in";

// But for one that is part of "\r\n".
std::size_t last_return(std::string_view text) {
  if (!text.empty()) text.remove_suffix(1);
  return text.rfind('\r');
}

}  // namespace

void TracebackWatch::feed(TimePoint now, std::string_view bytes) {
  if (stopped_) return;
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    std::string_view part = bytes.substr(0, newline);
    // A progress bar may stand before it in its line; the last state of the bar is enough.
    if (!part.empty() && std::exchange(returned_, part.ends_with('\r'))) line_.clear();
    if (const auto at = last_return(part); at != std::string_view::npos) {
      line_.clear();
      part.remove_prefix(at + 1);
    }
    const bool whole = newline != std::string_view::npos;
    if (whole && line_.empty()) {
      take_line(now, part);
    } else {
      line_.append(part.substr(0, kMaxLine - std::min(kMaxLine, line_.size())));
      if (whole) take_line(now, line_);
      if (whole) line_.clear();
    }
    if (!whole) return;
    bytes.remove_prefix(newline + 1);
  }
}

void TracebackWatch::stop() {
  // A last line without a newline counts.
  if (!stopped_ && last_ && at_ != At::outside && !line_.empty()) take_line(last_->begun, line_);
  stopped_ = true;
}

std::optional<Traceback> TracebackWatch::last() const {
  TracebackWatch ended = *this;
  ended.stop();
  return ended.last_;
}

void TracebackWatch::take_line(TimePoint now, std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find_first_not_of(" \t") == std::string_view::npos) return;
  if (const auto at = line.find(kPython); at != std::string_view::npos) {
    if (of_no_matter_) return;
    prefix_ = line.substr(0, at);
    return begin(now, line, At::frames);
  }
  if (line.find(kCpp) != std::string_view::npos) {
    prefix_.clear();
    return begin(now, line, At::behind);
  }
  of_no_matter_ = line.find(kIgnored) != std::string_view::npos;
  if (of_no_matter_) at_ = At::outside;
  if (at_ == At::frames) return take_frame(line);
  if (at_ == At::behind) take_behind(line);
}

void TracebackWatch::take_frame(std::string_view line) {
  auto& lines = last_->lines;
  if (lines.size() == kLines) lines.erase(lines.begin());
  lines.emplace_back(line.substr(0, kMaxLine));
  const std::string_view text = has_prefix(line) ? line.substr(prefix_.size()) : line;
  if (text.starts_with(' ') || text.starts_with('\t')) {
    seen_frame_ = true;
    return;
  }
  // That names the exception.
  if (!has_prefix(line)) prefix_.clear();
  at_ = seen_frame_ ? At::behind : At::outside;
  if (!seen_frame_) lines.clear();
}

void TracebackWatch::take_behind(std::string_view line) {
  if (last_->behind.size() == kLinesBehind || !has_prefix(line)) {
    at_ = At::outside;
  } else if (line.starts_with(kCppMessage)) {
    last_->lines.emplace_back(line.substr(0, kMaxLine));
  } else {
    last_->behind.emplace_back(line.substr(0, kMaxLine));
  }
}

void TracebackWatch::begin(TimePoint now, std::string_view line, At at) {
  last_ = Traceback{.begun = now, .lines = {std::string(line.substr(0, kMaxLine))}, .behind = {}};
  at_ = at;
  seen_frame_ = false;
}

bool TracebackWatch::has_prefix(std::string_view line) const { return line.starts_with(prefix_); }

}  // namespace dlaunch
