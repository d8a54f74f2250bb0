#include "launcher/stdin_pump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <asio/post.hpp>

namespace dlaunch {
namespace {

constexpr std::size_t kChunk = 64 << 10;

}  // namespace

StdinPump::StdinPump(asio::io_context& loop, int source)
    : loop_(loop), source_(source), descriptor_(loop) {
  struct stat st {};
  ended_ = ::fstat(source, &st) != 0;
  // /dev/null and files cannot be waited for and need not be.
  pollable_ = !ended_ && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || ::isatty(source));
  if (!pollable_) return;
  asio::error_code ec;
  descriptor_.assign(::fcntl(source, F_DUPFD_CLOEXEC, 3), ec);
  if (ec) ended_ = true;
}

Result<UniqueFd> StdinPump::add_taker() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe for stdin", errno);
  UniqueFd reading(ends[0]), writing(ends[1]);
  if (ended_) return reading;  // an empty stdin
  ::fcntl(writing.get(), F_SETFL, O_NONBLOCK);
  auto taker = std::make_shared<Taker>(loop_);
  asio::error_code ec;
  taker->pipe.assign(writing.release(), ec);
  taker->sent = chunk_.size();  // a newcomer starts with what is read next
  takers_.push_back(std::move(taker));
  if (takers_.size() == 1) asio::post(loop_, [this] { read_more(); });
  return reading;
}

void StdinPump::close() {
  ended_ = true;
  asio::error_code ec;
  descriptor_.close(ec);
  for (const auto& taker : takers_) taker->pipe.close(ec);
  takers_.clear();
}

void StdinPump::read_more() {
  if (reading_ || ended_ || takers_.empty()) return;
  if (!pollable_) return on_readable();
  reading_ = true;
  descriptor_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code ec) {
    if (ec == asio::error::operation_aborted) return;
    reading_ = false;
    if (!ec) on_readable();
  });
}

void StdinPump::on_readable() {
  if (ended_) return;
  chunk_.resize(kChunk);
  const ssize_t n = ::read(source_, chunk_.data(), chunk_.size());
  chunk_.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return read_more();
  if (n < 0) return;  // EIO: a terminal that we are in the background of
  if (n == 0) return close();
  for (const auto& taker : takers_) taker->sent = 0;
  hand_out();
}

void StdinPump::hand_out() {
  const auto now = takers_;  // a taker that fails leaves the list
  for (const auto& taker : now) hand_out_to(taker);
}

void StdinPump::hand_out_to(const TakerPtr& taker) {
  while (taker->sent < chunk_.size()) {
    const ssize_t n = ::write(taker->pipe.native_handle(), chunk_.data() + taker->sent,
                              chunk_.size() - taker->sent);
    if (n > 0) {
      taker->sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      taker->pipe.async_wait(asio::posix::stream_descriptor::wait_write,
                             [this, taker](asio::error_code ec) {
                               if (!ec) hand_out_to(taker);
                             });
      return;
    } else if (errno != EINTR) {
      takers_.remove(taker);  // it closed its stdin or has ended
      break;
    }
  }
  const bool all = std::all_of(takers_.begin(), takers_.end(),
                               [&](const auto& t) { return t->sent == chunk_.size(); });
  if (all) asio::post(loop_, [this] { read_more(); });
}

}  // namespace dlaunch
