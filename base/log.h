// dlaunch's own messages: one line per event. The sink is the one tolerated global: write-only,
// never read by logic. The launcher points it at its output hub so that no worker's line can tear a
// log line; without that, lines go to stderr. Libraries inside workers log warnings at most.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace dlaunch {

enum class LogLevel { error, warn, info, debug };

// Takes whole lines without the newline. Any thread may call it, one call at a time.
using LogSink = std::function<void(LogLevel, std::string_view line)>;

void set_log_sink(LogSink sink);  // an empty sink restores stderr
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::error, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::info)) {
    log_line(LogLevel::info, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::debug)) {
    log_line(LogLevel::debug, fmt::format(format, std::forward<Args>(args)...));
  }
}

}  // namespace dlaunch
