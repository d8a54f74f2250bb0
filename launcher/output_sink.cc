#include "launcher/output_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace dlaunch {
namespace {

// A blocking descriptor that polls as writable takes this much without blocking, if it is a pipe.
constexpr std::size_t kSafePiece = 4096;
constexpr std::size_t kPiece = 1 << 20;

}  // namespace

OutputSink::OutputSink(asio::io_context& loop, int fd, std::function<void()> drained)
    : kind_(Kind::shared), descriptor_(loop), drained_(std::move(drained)) {
  struct stat st {};
  int own = -1;
  if (::fstat(fd, &st) != 0) {
    gone_ = true;  // closed before we were started
    return;
  }
  if (S_ISREG(st.st_mode)) {
    kind_ = Kind::file;
  } else if (S_ISSOCK(st.st_mode)) {
    kind_ = Kind::socket;
  } else {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    own = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (own >= 0) kind_ = Kind::reopened;
  }
  if (own < 0) own = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  asio::error_code ec;
  descriptor_.assign(own, ec);
  if (ec) {
    ::close(own);
    gone_ = true;
  }
}

long OutputSink::write_some() {
  const char* from = waiting_.data() + written_;
  const std::size_t size = std::min(waiting_.size() - written_, kPiece);
  const int fd = descriptor_.native_handle();
  if (kind_ == Kind::socket) return ::send(fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (kind_ == Kind::shared) {
    pollfd p{fd, POLLOUT, 0};
    if (::poll(&p, 1, 0) == 0) {
      errno = EAGAIN;
      return -1;
    }
    return ::write(fd, from, std::min(size, kSafePiece));
  }
  return ::write(fd, from, size);
}

void OutputSink::flush() {
  if (pending_) return;
  while (!gone_ && !empty()) {
    const long n = write_some();
    if (n > 0) {
      written_ += static_cast<std::size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return wait_for_room();
    } else if (n == 0 || errno != EINTR) {
      gone_ = true;  // closed pipe, hung-up terminal, full disk: nothing more can be shown there
    }
  }
  waiting_.clear();
  written_ = 0;
  // One very long line must not hold its memory for the rest of the job.
  if (waiting_.capacity() > 2 * kHighWater) waiting_.shrink_to_fit();
}

void OutputSink::wait_for_room() {
  pending_ = true;
  // What has been written is dropped only when that is cheap, not at each partial write.
  if (written_ >= kLowWater) {
    waiting_.erase(0, written_);
    written_ = 0;
  }
  descriptor_.async_wait(asio::posix::stream_descriptor::wait_write, [this](asio::error_code ec) {
    if (ec == asio::error::operation_aborted) return;
    pending_ = false;
    if (ec) gone_ = true;
    flush();
    if (gone_ || waiting_.size() - written_ <= kLowWater) drained_();
  });
}

bool same_target(int a, int b) {
  struct stat sa {
  }, sb{};
  return ::fstat(a, &sa) == 0 && ::fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
         sa.st_ino == sb.st_ino;
}

}  // namespace dlaunch
