#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <mutex>

namespace dlaunch {
namespace {

std::atomic<LogLevel> g_level{LogLevel::warn};
std::mutex g_sink_mutex;
LogSink g_sink;

}  // namespace

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(g_sink_mutex);
  g_sink = std::move(sink);
}

void set_log_level(LogLevel level) { g_level = level; }
bool log_enabled(LogLevel level) { return level <= g_level.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view text) {
  if (!log_enabled(level)) return;
  std::string line = "dlaunch: ";
  if (level == LogLevel::warn) line += "warning: ";
  if (level == LogLevel::debug) line += "debug: ";
  line += text;
  const std::lock_guard lock(g_sink_mutex);
  if (g_sink) return g_sink(level, line);
  line += '\n';
  // One write, so that lines of several processes on one terminal stay whole.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace dlaunch
