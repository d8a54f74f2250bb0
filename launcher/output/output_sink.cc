#include "launcher/output/output_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/output/own_descriptor.h"

namespace dlaunch {
namespace {

// A blocking pipe that polls as writable takes this much without blocking.
constexpr std::size_t kSafePiece = 4096;
constexpr std::size_t kPiece = 1 << 20;

}  // namespace

OutputSink::OutputSink(asio::io_context& loop, FileWriter& files, int fd, std::string name,
                       Handlers handlers)
    : files_(files), name_(std::move(name)), descriptor_(loop), handlers_(std::move(handlers)) {
  UniqueFd own = open_own(fd);
  if (file_) return;
  if (kind_ != Kind::reopened && own) {
    if (UniqueFd watch = watch_of(own.get(), O_WRONLY)) {
      shared_ = std::move(own);
      own = std::move(watch);
    }
  }
  asio::error_code ec;
  if (own) descriptor_.assign(own.get(), ec);
  gone_ = !own || ec;  // closed before we were started, or no descriptor left
  if (!gone_) own.release();
}

UniqueFd OutputSink::open_own(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return {};
  terminal_ = ::isatty(fd) != 0;
  if (S_ISREG(st.st_mode)) {
    UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (own) file_ = std::make_shared<FileWriter::File>(std::move(own), "to dlaunch's " + name_);
    return {};
  }
  if (S_ISSOCK(st.st_mode)) {
    kind_ = Kind::socket;
  } else {
    UniqueFd own = open_anew(fd, O_WRONLY);
    if (own) {
      kind_ = Kind::reopened;
      return own;
    }
  }
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

// The keeper, our parent, has the group that the shell has made for the job.
bool OutputSink::is_foreground() {
  if (!terminal_ || gone_) return false;
  const pid_t front = ::tcgetpgrp(target());
  return front < 0 || front == ::getpgrp() || front == ::getpgid(::getppid());
}

LiveBars::Window OutputSink::window() {
  LiveBars::Window window;
  winsize size{};
  if (!terminal_ || gone_ || ::ioctl(target(), TIOCGWINSZ, &size) != 0) return window;
  if (size.ws_col > 0) window.columns = size.ws_col;
  if (size.ws_row > 0) window.rows = size.ws_row;
  return window;
}

int OutputSink::target() { return shared_ ? shared_.get() : descriptor_.native_handle(); }

long OutputSink::write_some() {
  const char* from = waiting_.data() + written_;
  const std::size_t size = std::min(waiting_.size() - written_, kPiece);
  const int fd = target();
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
  if (file_) {
    files_.write(file_, waiting_);
    return waiting_.clear();
  }
  if (pending_) return;
  while (!gone_ && !empty()) {
    const long n = write_some();
    if (n > 0) {
      written_ += static_cast<std::size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return wait_for_room();
    } else if (n == 0 || errno != EINTR) {
      fail(n == 0 ? EIO : errno);
    }
  }
  waiting_.clear();
  written_ = 0;
  // One very long line must not hold its memory for the rest of the job.
  if (waiting_.capacity() > 4 * kHighWater) waiting_.shrink_to_fit();
}

void OutputSink::fail(int err) {
  gone_ = true;
  if (err == EIO && terminal_) return;  // the terminal has been hung up
  if (err == EPIPE || err == ECONNRESET) {
    handlers_.failed({.code = Errc::io, .what = "dlaunch's " + name_ + " has lost its reader"});
  } else {
    handlers_.failed(errno_error("write to dlaunch's " + name_, err));
  }
}

void OutputSink::wait_for_room() {
  pending_ = true;
  drop_written();
  using Descriptor = asio::posix::stream_descriptor;
  const auto room = shared_ ? Descriptor::wait_read : Descriptor::wait_write;
  descriptor_.async_wait(room, [this](asio::error_code ec) {
    if (ec == asio::error::operation_aborted) return;
    pending_ = false;
    if (ec) gone_ = true;
    flush();
    if (gone_ || waiting_.size() - written_ <= kLowWater) handlers_.drained();
  });
}

// Only if fewer bytes are moved than were written: each byte is then moved at most once.
void OutputSink::drop_written() {
  if (written_ < waiting_.size() / 2) return;
  waiting_.erase(0, written_);
  written_ = 0;
}

}  // namespace dlaunch
