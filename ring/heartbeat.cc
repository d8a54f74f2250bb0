// dl_heartbeat(): a byte in the pipe that dlaunch gave this worker.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/clock.h"
#include "base/contract.h"
#include "dlaunch/ring.h"

namespace dlaunch {
namespace {

constexpr std::int64_t kInterval = std::chrono::nanoseconds(std::chrono::milliseconds(100)).count();

template <class Number>
Number variable(const char* name, Number otherwise) {
  const char* const text = ::getenv(name);
  Number number = otherwise;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), number);
  return number;
}

// A program may have closed the descriptor, and a file that it opened later may have its number.
bool is_pipe(int fd, ino_t inode) {
  struct stat st {};
  return ::fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_ino == inode;
}

bool send_heartbeat() {
  static const int fd = variable(contract::kHeartbeatFd, -1);
  static const auto inode = variable<ino_t>(contract::kHeartbeatPipe, 0);
  static std::atomic<std::int64_t> last{std::numeric_limits<std::int64_t>::min() / 2};
  if (fd < 0 || inode == 0) return false;
  const std::int64_t now = steady_now().time_since_epoch().count();
  std::int64_t before = last.load(std::memory_order_relaxed);
  if (now - before < kInterval) return true;
  if (!is_pipe(fd, inode)) return false;
  if (!last.compare_exchange_strong(before, now, std::memory_order_relaxed)) return true;
  constexpr char kByte = '\n';
  [[maybe_unused]] const auto written = ::write(fd, &kByte, 1);  // a full pipe says enough
  return true;
}

}  // namespace
}  // namespace dlaunch

int dl_heartbeat(void) { return dlaunch::send_heartbeat() ? 1 : 0; }
