// dl_heartbeat() and dl_report_progress(): lines in the pipe that dlaunch gave this worker.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/clock.h"
#include "base/contract.h"
#include "base/run_progress.h"
#include "dlaunch/ring.h"

namespace dlaunch {
namespace {

constexpr std::int64_t kInterval = std::chrono::nanoseconds(std::chrono::milliseconds(100)).count();
constexpr std::int64_t kLongAgo = std::numeric_limits<std::int64_t>::min() / 2;

template <class Number>
Number variable(const char* name, Number otherwise) {
  const char* const text = ::getenv(name);
  Number number = otherwise;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), number);
  return number;
}

struct HeartbeatPipe {
  int fd = variable(contract::kHeartbeatFd, -1);
  ino_t inode = variable<ino_t>(contract::kHeartbeatPipe, 0);
  bool given() const { return fd >= 0 && inode != 0; }
  // A program may have closed the descriptor, and a file that it opened later may have its number.
  bool is_there() const {
    struct stat st {};
    return ::fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_ino == inode;
  }
  void write(std::string_view line) const {
    [[maybe_unused]] const auto written = ::write(fd, line.data(), line.size());  // perhaps full
  }
};

const HeartbeatPipe& heartbeat_pipe() {
  static const HeartbeatPipe pipe;
  return pipe;
}

// Grants at most one line in each interval, to one of several threads.
class Pace {
 public:
  bool is_due(std::int64_t now) const { return now - last_.load(kRelaxed) >= kInterval; }
  bool take(std::int64_t now) {
    std::int64_t before = last_.load(kRelaxed);
    return now - before >= kInterval && last_.compare_exchange_strong(before, now, kRelaxed);
  }
  void note(std::int64_t now) { last_.store(now, kRelaxed); }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  std::atomic<std::int64_t> last_{kLongAgo};
};

constinit Pace g_heartbeats, g_progress;
// The last step, which is due at once, has been sent.
constinit std::atomic<std::int64_t> g_finished{-1};

std::int64_t now_ns() { return steady_now().time_since_epoch().count(); }

bool send_heartbeat() {
  const HeartbeatPipe& pipe = heartbeat_pipe();
  if (!pipe.given()) return false;
  const std::int64_t now = now_ns();
  if (!g_heartbeats.is_due(now)) return true;
  if (!pipe.is_there()) return false;
  if (g_heartbeats.take(now)) pipe.write("\n");
  return true;
}

bool finishes(std::int64_t step, std::int64_t total) {
  return total > 0 && step >= total && g_finished.load(std::memory_order_relaxed) != step;
}

bool progress_is_due(std::int64_t step, std::int64_t total) {
  return heartbeat_pipe().given() && (finishes(step, total) || g_progress.is_due(now_ns()));
}

bool send_progress(std::int64_t step, std::int64_t total, const dl_value* values,
                   std::size_t count) {
  const HeartbeatPipe& pipe = heartbeat_pipe();
  if (!progress_is_due(step, total)) return pipe.given();
  if (!pipe.is_there()) return false;
  const bool last = finishes(step, total);
  const std::int64_t now = now_ns();
  if (last) g_finished.store(step, std::memory_order_relaxed);
  if (!g_progress.take(now) && !last) return true;
  g_heartbeats.note(now);
  RunProgress progress{.at = TimePoint(Duration(now)),
                       .step = std::max<std::int64_t>(step, 0),
                       .total = std::max<std::int64_t>(total, 0),
                       .values = {}};
  for (std::size_t i = 0; i < std::min(count, kMaxProgressValues); ++i) {
    if (values[i].name != nullptr) progress.values.push_back({values[i].name, values[i].value});
  }
  pipe.write(progress_line_of(progress));
  return true;
}

}  // namespace
}  // namespace dlaunch

int dl_heartbeat(void) { return dlaunch::send_heartbeat() ? 1 : 0; }

int dl_report_due(int64_t step, int64_t total) {
  return dlaunch::progress_is_due(step, total) ? 1 : 0;
}

int dl_report_progress(int64_t step, int64_t total, const dl_value* values, size_t count) {
  return dlaunch::send_progress(step, total, values, count) ? 1 : 0;
}
