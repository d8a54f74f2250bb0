#include "base/run_progress.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/text.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMaxLine = 4096;
constexpr Duration kOldest = std::chrono::seconds(10);  // that a line may have waited in the pipe

std::string word_of_name(std::string_view name) {
  std::string word(name.substr(0, kMaxProgressName));
  for (char& c : word) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && std::string_view("_-./%:").find(c) == std::string_view::npos) c = '_';
  }
  return word;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "1200" or "1200/5000"
bool take_step(std::string_view word, RunProgress& progress) {
  const auto slash = word.find('/');
  const auto step = number_of<std::int64_t>(word.substr(0, slash));
  if (!step || *step < 0) return false;
  progress.step = *step;
  if (slash == std::string_view::npos) return true;
  const auto total = number_of<std::int64_t>(word.substr(slash + 1));
  if (!total || *total < 0) return false;
  progress.total = *total;
  return true;
}

bool take_value(std::string_view word, RunProgress& progress) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  const auto value = number_of<double>(word.substr(equals + 1));
  if (!value) return false;
  if (progress.values.size() < kMaxProgressValues) {
    progress.values.push_back({word_of_name(word.substr(0, equals)), *value});
  }
  return true;
}

}  // namespace

std::string progress_line_of(const RunProgress& progress) {
  std::string line = fmt::format("@{} {}", progress.at.time_since_epoch().count(), progress.step);
  if (progress.total > 0) line += fmt::format("/{}", progress.total);
  const std::size_t most = std::min(progress.values.size(), kMaxProgressValues);
  for (std::size_t i = 0; i < most; ++i) {
    const auto& [name, value] = progress.values[i];
    if (!name.empty()) line += fmt::format(" {}={}", word_of_name(name), value);
  }
  return line + "\n";
}

void ProgressReader::feed(TimePoint now, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const bool ends = end != std::string_view::npos;
    const std::string_view part = bytes.substr(0, end);
    if (!skips_) begun_.append(part.substr(0, kMaxLine + 1));
    if (begun_.size() > kMaxLine) {
      skips_ = true;
      begun_.clear();
    }
    bytes.remove_prefix(ends ? end + 1 : bytes.size());
    if (!ends) continue;
    if (!skips_) take(now, begun_);
    skips_ = false;
    begun_.clear();
  }
}

void ProgressReader::take(TimePoint now, std::string_view line) {
  auto words = split_words(line, ' ');
  if (words.empty()) return;
  RunProgress progress{.at = now, .values = {}};
  auto word = words.begin();
  if (word->front() == '@') {
    const auto ns = number_of<std::int64_t>(word->substr(1));
    const TimePoint at{Duration(ns.value_or(-1))};
    if (at <= now && at > now - kOldest) progress.at = at;
    ++word;
  }
  if (word == words.end() || !take_step(*word, progress)) return;
  while (++word != words.end()) {
    if (!take_value(*word, progress)) return;
  }
  last_ = std::move(progress);
}

}  // namespace dlaunch
