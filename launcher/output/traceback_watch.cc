#include "launcher/output/traceback_watch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace dlaunch {
namespace {

constexpr std::string_view kPython = "Traceback (most recent call last)";
constexpr std::string_view kGroup = "  + Exception Group Traceback (most recent call last)";
constexpr std::string_view kCpp = "terminate called after throwing";
constexpr std::string_view kCppMessage = "  what():";
constexpr std::string_view kIgnored = "Exception ignored in";
constexpr std::string_view kChains[] = {
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:"};
constexpr std::string_view kSyntaxErrors[] = {"SyntaxError", "IndentationError", "TabError"};
constexpr std::size_t kSyntaxLines = 4;  // of a SyntaxError before its name
constexpr std::size_t kGroupFrames = 2;  // the last lines of frames of each exception in a group

// The last "\r" that is not part of "\r\n" at the end.
std::size_t last_return(std::string_view text) {
  if (!text.empty()) text.remove_suffix(1);
  return text.rfind('\r');
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t") == std::string_view::npos;
}

bool is_indented(std::string_view text) { return text.starts_with(' ') || text.starts_with('\t'); }

// `  File "a.py", line 1`: followed by ", in f" it is a frame.
bool begins_syntax_error(std::string_view text) {
  if (!text.starts_with("  File \"")) return false;
  const auto digits = text.find_last_not_of("0123456789");
  return digits + 1 < text.size() && text.substr(0, digits + 1).ends_with("\", line ");
}

bool names_syntax_error(std::string_view text) {
  return std::ranges::any_of(kSyntaxErrors, [=](auto name) { return text.starts_with(name); });
}

// A line of the tree is "  | text", "  +---" or "  +-+---", indented by its depth.
bool is_in_group(std::string_view text) {
  const auto at = text.find_first_not_of(' ');
  return at >= 2 && at != std::string_view::npos && (text[at] == '|' || text[at] == '+');
}

bool ends_branch(std::string_view text) {
  return text.find_first_not_of(" +-") == std::string_view::npos;
}

// The text behind the margin; "" if there is no margin.
std::string_view behind_margin(std::string_view text) {
  const auto bar = text.find('|');
  return text.substr(std::min(text.size(), bar == std::string_view::npos ? bar : bar + 2));
}

}  // namespace

bool is_chain_line(std::string_view line) {
  return std::ranges::any_of(kChains, [=](auto words) { return line.ends_with(words); });
}

void TracebackWatch::feed(TimePoint now, std::string_view bytes) {
  if (stopped_) return;
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    std::string_view part = bytes.substr(0, newline);
    // A progress bar may precede it in its line; the last state of the bar is enough.
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
  if (!stopped_ && at_ != At::outside && !line_.empty()) {
    take_line(last_ ? last_->begun : syntax_begun_, line_);
  }
  stopped_ = true;
}

std::optional<Traceback> TracebackWatch::last() const {
  TracebackWatch ended = *this;
  ended.stop();
  return ended.last_;
}

std::optional<TimePoint> TracebackWatch::begun() const {
  return last_ ? std::optional(last_->begun) : std::nullopt;
}

void TracebackWatch::take_line(TimePoint now, std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  line = line.substr(0, kMaxLine);
  if (is_blank(line) || is_blank(text_of(line))) return;
  if (at_ == At::group && is_in_group(text_of(line))) return take_group(line);
  if (begins(now, line)) return;
  of_no_matter_ = line.find(kIgnored) != std::string_view::npos;
  if (of_no_matter_) at_ = At::outside;
  switch (at_) {
    case At::frames:
      return take_frame(line);
    case At::behind:
      return take_behind(line);
    case At::syntax:
      return take_syntax(line);
    case At::group:  // Python 3.11 prints the later lines of a message without a margin
      if (++strays_ > kLinesBehind) at_ = At::outside;
      break;
    case At::chained:
      at_ = At::outside;
      break;
    case At::outside:
      break;
  }
}

// An exception begins, or another one of its chain.
bool TracebackWatch::begins(TimePoint now, std::string_view line) {
  if (last_ && !last_->error.empty() && is_chain_line(line) && has_prefix(line)) {
    at_ = At::chained;
    return true;
  }
  if (const auto at = line.find(kGroup); at != std::string_view::npos) {
    if (of_no_matter_) return true;
    begin(now, line, At::group);
    prefix_ = line.substr(0, at);
    return true;
  }
  if (const auto at = line.find(kPython); at != std::string_view::npos) {
    if (of_no_matter_) return true;
    begin(now, line, At::frames);
    prefix_ = line.substr(0, at);
    return true;
  }
  if (line.find(kCpp) != std::string_view::npos) {
    begin(now, line, At::behind);
    last_->error = line;
    prefix_.clear();
    return true;
  }
  if (at_ == At::frames || !begins_syntax_error(line)) return false;
  at_ = At::syntax;
  syntax_begun_ = now;
  pending_.assign(1, std::string(line));
  return true;
}

void TracebackWatch::take_frame(std::string_view line) {
  auto& lines = last_->lines;
  if (lines.size() == kLines) lines.erase(lines.begin());
  lines.emplace_back(line);
  if (is_indented(text_of(line))) {
    seen_frame_ = true;
    return;
  }
  // This line names the exception.
  if (!has_prefix(line)) prefix_.clear();
  at_ = seen_frame_ ? At::behind : At::outside;
  seen_frame_ ? static_cast<void>(last_->error = line) : lines.clear();
}

void TracebackWatch::take_behind(std::string_view line) {
  if (last_->behind.size() == kLinesBehind || !has_prefix(line)) {
    at_ = At::outside;
  } else if (line.starts_with(kCppMessage) && last_->lines.size() == 1 &&
             last_->lines[0].find(kCpp) != std::string::npos) {
    last_->lines.emplace_back(line);
    last_->error = line;
  } else {
    last_->behind.emplace_back(line);
  }
}

// Keeps the last lines of frames, the name and the message of each exception in the tree.
void TracebackWatch::take_group(std::string_view line) {
  const std::string_view text = text_of(line), said = behind_margin(text);
  strays_ = 0;
  if (ends_branch(text) || said.ends_with(std::string(kPython) + ":")) return;
  if (is_indented(said)) {
    if (said.find_first_not_of(" ^~") == std::string_view::npos) return;
    if (pending_.size() == kGroupFrames) pending_.erase(pending_.begin());
    pending_.emplace_back(line);
    return;
  }
  if (last_->error.empty()) last_->error = said;
  auto kept = std::exchange(pending_, {});
  kept.emplace_back(line);
  auto& lines = last_->lines;
  for (auto& one : kept) {
    if (lines.size() < kGroupLines) {
      lines.push_back(std::move(one));
    } else {
      lines.back() = fmt::format("{}  | … {} more lines", prefix_, ++left_out_ + 1);
    }
  }
}

void TracebackWatch::take_syntax(std::string_view line) {
  pending_.emplace_back(line);
  if (is_indented(line)) {
    if (pending_.size() > kSyntaxLines) at_ = At::outside;
    return;
  }
  at_ = At::outside;
  if (!names_syntax_error(line)) return;
  auto lines = std::exchange(pending_, {});
  begin(syntax_begun_, line, At::behind);
  last_->lines = std::move(lines);
  last_->error = line;
  prefix_.clear();
}

void TracebackWatch::begin(TimePoint now, std::string_view line, At at) {
  Traceback fresh{.begun = now, .lines = {std::string(line)}};
  if (at_ == At::chained) {
    fresh.begun = last_->begun;
    fresh.first_error = last_->first_error;
    fresh.first = std::move(last_->first);
    fresh.between = last_->between + 1;
    if (fresh.first.empty()) {
      fresh.first_error = last_->error;
      fresh.first = std::move(last_->lines);
      fresh.first.insert(fresh.first.end(), last_->behind.begin(), last_->behind.end());
      fresh.between = 0;
    }
  }
  last_ = std::move(fresh);
  at_ = at;
  seen_frame_ = false;
  pending_.clear();
  left_out_ = strays_ = 0;
}

bool TracebackWatch::has_prefix(std::string_view line) const { return line.starts_with(prefix_); }

std::string_view TracebackWatch::text_of(std::string_view line) const {
  return has_prefix(line) ? line.substr(prefix_.size()) : line;
}

}  // namespace dlaunch
