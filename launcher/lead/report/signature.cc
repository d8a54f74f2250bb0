#include <algorithm>
#include <cctype>
#include <functional>
#include <string>

#include <fmt/format.h>

#include "launcher/lead/report/report.h"

namespace dlaunch {
namespace {

// The exception, of a chain the first and the last, or else the last line with content.
std::string innermost_line(const WorkerEnd& end) {
  if (tells_of_failure(end, end.ended) && !end.traceback->lines.empty()) {
    const Traceback& last = *end.traceback;
    return last.first_error + (last.error.empty() ? last.lines.back() : last.error);
  }
  const auto last = std::find_if(end.stderr_tail.rbegin(), end.stderr_tail.rend(),
                                 [](const std::string& line) { return !line.empty(); });
  return last == end.stderr_tail.rend() ? end.error_file : *last;
}

std::string innermost_words(const WorkerEnd& end, bool with_numbers) {
  std::string words;
  for (const char c : innermost_line(end)) {
    if (with_numbers || !std::isdigit(static_cast<unsigned char>(c))) words += c;
  }
  return words;
}

}  // namespace

FailureKind failure_kind(const WorkerEnd& end) {
  if (!end.corrupt.empty()) return FailureKind::corrupt;
  if (end.signal == 0) return FailureKind::exit_code;
  return end.oom_evidence ? FailureKind::out_of_memory : FailureKind::signal;
}

std::uint64_t signature_of(const WorkerEnd& end, bool with_numbers) {
  if (end.signal_we_sent != 0) return 0;
  if (end.oom_evidence) return std::hash<std::string>()("out of memory");
  const std::string words = innermost_words(end, with_numbers);
  if (words.empty()) return 0;
  return std::hash<std::string>()(fmt::format("{} {} {}", end.exit_code, end.signal, words));
}

}  // namespace dlaunch
