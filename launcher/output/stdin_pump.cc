#include "launcher/output/stdin_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <asio/post.hpp>

#include "launcher/output/own_descriptor.h"

namespace dlaunch {
namespace {

constexpr std::size_t kChunk = 64 << 10;
constexpr Duration kForegroundLook = std::chrono::milliseconds(250);

}  // namespace

StdinPump::StdinPump(asio::io_context& loop, int source)
    : loop_(loop), source_(source), descriptor_(loop), again_(loop) {
  if (fed()) return;
  struct stat st {};
  ended_ = ::fstat(source, &st) != 0;
  // /dev/null and files cannot be waited for and need not be.
  pollable_ = !ended_ && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || ::isatty(source));
  if (!pollable_) return;
  UniqueFd own = open_anew(source, O_RDONLY);
  if (!own) own.reset(::fcntl(source, F_DUPFD_CLOEXEC, 3));
  asio::error_code ec;
  descriptor_.assign(own.get(), ec);
  ended_ = static_cast<bool>(ec);
  if (!ended_) source_ = own.release();
}

Result<UniqueFd> StdinPump::add_taker() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe for a worker's stdin", errno);
  UniqueFd reading(ends[0]), writing(ends[1]);
  if (ended_) return reading;  // an empty stdin
  ::fcntl(writing.get(), F_SETFL, O_NONBLOCK);
  auto taker = std::make_shared<Taker>(loop_);
  asio::error_code ec;
  taker->pipe.assign(writing.get(), ec);
  if (ec) return errno_error("watch a worker's stdin", ec.value());
  writing.release();
  taker->sent = chunk_.size();
  takers_.push_back(std::move(taker));
  // Not at once: the other workers that are being started are to get the same.
  if (takers_.size() == 1) asio::post(loop_, [this] { read_more(); });
  return reading;
}

void StdinPump::close() {
  ended_ = true;
  asio::error_code ec;
  descriptor_.close(ec);
  again_.cancel();
  for (const auto& taker : takers_) taker->pipe.close(ec);
  takers_.clear();
  for (const auto& [host, asked] : std::exchange(hosts_, {})) give_(host, "");
}

// -- Other hosts

void StdinPump::set_give(std::function<void(int, const std::string&)> give) {
  give_ = std::move(give);
}

void StdinPump::expect(int host) {
  if (!ended_) hosts_.emplace(host, false);
}

void StdinPump::host_asks(int host, bool wants) {
  if (wants && ended_) return give_(host, "");
  wants ? void(hosts_[host] = true) : void(hosts_.erase(host));
  asio::post(loop_, [this] { read_more(); });
}

void StdinPump::set_ask(std::function<void(bool)> ask) { ask_ = std::move(ask); }

void StdinPump::ask_again() {
  if (!fed()) return;
  asked_ = false;
  if (!takers_.empty()) read_more();
}

void StdinPump::ask() {
  if (!std::exchange(asked_, true)) ask_(true);
}

void StdinPump::feed(std::string bytes) {
  asked_ = false;
  if (ended_) return;
  if (bytes.empty()) return close();
  drop_takers_that_left();
  chunk_ = std::move(bytes);
  for (const auto& taker : takers_) taker->sent = 0;
  takers_.empty() ? ask_(false) : hand_out();
}

// -- Reading

void StdinPump::read_more() {
  if (reading_ || ended_ || !all_served()) return;
  if (fed()) return takers_.empty() ? ask_(false) : ask();
  if (nobody()) return;
  if (!pollable_) return on_readable();
  reading_ = true;
  descriptor_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code ec) {
    if (ec == asio::error::operation_aborted) return;
    reading_ = false;
    if (!ec) on_readable();
  });
}

void StdinPump::drop_takers_that_left() {
  takers_.remove_if([](const TakerPtr& taker) {
    pollfd p{taker->pipe.native_handle(), 0, 0};
    return ::poll(&p, 1, 0) == 1 && (p.revents & POLLERR) != 0;
  });
}

void StdinPump::on_readable() {
  if (ended_) return;
  drop_takers_that_left();
  if (nobody()) return;
  chunk_.resize(kChunk);
  const ssize_t n = ::read(source_, chunk_.data(), chunk_.size());
  const int err = errno;
  chunk_.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  for (const auto& taker : takers_) taker->sent = 0;
  if (n > 0) {
    on_read_();
    return hand_out();
  }
  if (n < 0 && (err == EAGAIN || err == EINTR)) return read_more();
  if (n < 0 && err == EIO && ::isatty(source_)) return wait_for_foreground();
  close();
}

bool StdinPump::all_served() const {
  return std::all_of(takers_.begin(), takers_.end(),
                     [&](const auto& taker) { return taker->sent == chunk_.size(); }) &&
         std::all_of(hosts_.begin(), hosts_.end(), [](const auto& host) { return host.second; });
}

// A shell's `fg` of a job that is stopped sends SIGCONT, of one that runs nothing.
void StdinPump::wait_for_foreground() {
  reading_ = true;
  again_.expires_after(kForegroundLook);
  again_.async_wait([this](asio::error_code error) {
    if (error) return;
    reading_ = false;
    read_more();
  });
}

void StdinPump::hand_out() {
  for (auto& [host, asked] : hosts_) {
    asked = false;
    give_(host, chunk_);
  }
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
                               if (!ec && taker->pipe.is_open()) hand_out_to(taker);
                             });
      return;
    } else if (errno != EINTR) {
      takers_.remove(taker);  // it has closed its stdin or has ended
      break;
    }
  }
  if (all_served()) asio::post(loop_, [this] { read_more(); });
}

}  // namespace dlaunch
