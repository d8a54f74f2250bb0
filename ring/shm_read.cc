#include "ring/shm_read.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <climits>

#include "base/clock.h"

namespace dlaunch {
namespace {

ssize_t read_some(pid_t pid, std::uint64_t from, std::span<iovec> to, std::size_t bytes) {
  iovec there{reinterpret_cast<void*>(from), bytes};  // NOLINT: an address elsewhere
  return ::process_vm_readv(pid, to.data(), std::min<std::size_t>(to.size(), IOV_MAX), &there, 1,
                            0);
}

bool read_exactly(pid_t pid, std::uint64_t from, void* to, std::size_t bytes) {
  iovec here{to, bytes};
  return read_some(pid, from, {&here, 1}, bytes) == static_cast<ssize_t>(bytes);
}

// Drops what has been filled.
std::span<iovec> rest_of(std::span<iovec> pieces, std::size_t filled) {
  while (!pieces.empty() && filled >= pieces.front().iov_len) {
    filled -= pieces.front().iov_len;
    pieces = pieces.subspan(1);
  }
  if (filled > 0) {
    pieces.front().iov_base = static_cast<char*>(pieces.front().iov_base) + filled;
    pieces.front().iov_len -= filled;
  }
  return pieces;
}

}  // namespace

ReadProbe make_read_probe(const std::uint64_t* word) {
  const auto pid = static_cast<std::int64_t>(::getpid());
  const auto now = static_cast<std::uint64_t>(steady_now().time_since_epoch().count());
  return {.pid = pid,
          .address = reinterpret_cast<std::uintptr_t>(word),
          .word = now ^ static_cast<std::uint64_t>(pid) << 48 ^ 1};
}

bool can_read(const ReadProbe& probe) {
  std::uint64_t word = 0;
  return probe.pid > 0 &&
         read_exactly(static_cast<pid_t>(probe.pid), probe.address, &word, sizeof word) &&
         word == probe.word;
}

Result<void> read_process(pid_t pid, std::uint64_t from, std::span<iovec> to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = read_some(pid, from, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return errno_error("read another rank's memory", got < 0 ? errno : EFAULT);
    to = rest_of(to, static_cast<std::size_t>(got));
    from += static_cast<std::size_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

bool can_be_read(const void* begin, std::size_t bytes) {
  if (bytes == 0) return true;
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  char byte;
  return read_exactly(::getpid(), first, &byte, 1) &&
         read_exactly(::getpid(), first + bytes - 1, &byte, 1);
}

}  // namespace dlaunch
