#include "launcher/output/stdin_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <asio/post.hpp>

#include "base/clock.h"
#include "launcher/output/own_descriptor.h"

namespace dlaunch {
namespace {

constexpr Duration kForegroundLook = std::chrono::milliseconds(250);

// Bytes that a pipe holds, even if its reader has left.
std::size_t held_by(int pipe) {
  int bytes = 0;
  return ::ioctl(pipe, FIONREAD, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

// How many numbers these ranges cover together.
std::uint64_t covered(std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges) {
  std::ranges::sort(ranges);
  std::uint64_t sum = 0, end = 0;
  for (const auto& [from, to] : ranges) {
    if (to <= end) continue;
    sum += to - std::max(from, end);
    end = to;
  }
  return sum;
}

bool is_readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

}  // namespace

StdinPump::StdinPump(asio::io_context& loop, int source)
    : loop_(loop), given_(source), source_(source), descriptor_(loop), again_(loop) {
  if (fed()) return;
  struct stat st {};
  const int flags = ::fcntl(source, F_GETFL);
  ended_ = flags < 0 || ::fstat(source, &st) != 0;
  // nohup leaves a write-only stdin: its workers should find an empty one.
  can_hand_over_ = !ended_ && (flags & O_ACCMODE) != O_WRONLY && ::isatty(source) == 0;
  // /dev/null and files cannot be waited for and need not be.
  pollable_ = !ended_ && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || ::isatty(source));
  if (!pollable_) return;
  UniqueFd own = open_anew(source, O_RDONLY);
  const bool shared = !own;
  if (shared) own = watch_of(source, O_RDONLY);
  asio::error_code ec;
  descriptor_.assign(own.get(), ec);
  ended_ = static_cast<bool>(ec);
  if (ended_) return;
  const int watched = own.release();  // descriptor_'s now
  if (!shared) source_ = watched;
}

Result<UniqueFd> StdinPump::hand_over() const {
  UniqueFd copy(::fcntl(given_, F_DUPFD_CLOEXEC, 3));
  if (!copy) return errno_error("copy our stdin for a worker", errno);
  return copy;
}

Result<UniqueFd> StdinPump::add_taker() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe for a worker's stdin", errno);
  UniqueFd reading(ends[0]), writing(ends[1]);
  if (ended_) return reading;  // an empty stdin
  ::fcntl(writing.get(), F_SETFL, O_NONBLOCK);
  // A pipe of one page has room again only when its reader has taken all bytes in it.
  ::fcntl(writing.get(), F_SETPIPE_SZ, static_cast<int>(kFirstPiece));
  auto taker = std::make_shared<Taker>(loop_);
  asio::error_code ec;
  taker->pipe.assign(writing.get(), ec);
  if (ec) return errno_error("watch a worker's stdin", ec.value());
  writing.release();
  taker->sent = chunk_.size();
  taker->begun = read_;
  takers_.push_back(std::move(taker));
  // Not at once: the other workers that are being started must get the same input.
  if (takers_.size() == 1) asio::post(loop_, [this] { read_more(); });
  return reading;
}

void StdinPump::close() {
  if (std::exchange(accounts_open_, false)) settle_accounts();
  end();
}

// Workers should see the end at once; the bytes left in their pipes are counted at the job's end.
void StdinPump::end_of_input() {
  for (const auto& taker : takers_) {
    const int pipe = taker->pipe.native_handle();
    if (held_by(pipe) == 0) {
      note_taken(*taker);
    } else {
      rests_.push_back({open_anew(pipe, O_RDONLY), taker->begun, given_to(*taker)});
    }
  }
  end();
}

void StdinPump::end() {
  ended_ = true;
  asio::error_code ec;
  descriptor_.close(ec);
  again_.cancel();
  for (const auto& taker : takers_) taker->pipe.close(ec);
  takers_.clear();
  for (const auto& [host, asked] : std::exchange(hosts_, {})) give_(host, "");
}

std::uint64_t StdinPump::given_to(const Taker& taker) const {
  return read_ - (chunk_.size() - taker.sent);
}

void StdinPump::note_taken(Taker& taker) {
  note_taken(taker.begun, given_to(taker) - held_by(taker.pipe.native_handle()));
}

void StdinPump::note_taken(std::uint64_t from, std::uint64_t to) {
  if (!taken_.empty() && taken_.back().second == from) {
    taken_.back().second = to;
  } else {
    taken_.emplace_back(from, to);
  }
}

// Called if the job ends before its input. Gives back what we have read ahead of a file.
void StdinPump::settle_accounts() {
  for (const auto& taker : takers_) note_taken(*taker);
  for (const Rest& rest : rests_) {
    note_taken(rest.begun, rest.given - (rest.pipe ? held_by(rest.pipe.get()) : 0));
  }
  rests_.clear();
  std::uint64_t end = 0;
  for (const auto& [from, to] : taken_) end = std::max(end, to);
  unread_ = read_ - covered(taken_);
  const auto ahead = read_ - end;
  if (fed() || ahead == 0 || ::lseek(given_, 0, SEEK_CUR) < 0) return;
  if (::lseek(given_, -static_cast<off_t>(ahead), SEEK_CUR) >= 0) unread_ -= ahead;
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
  if (bytes.empty()) return end_of_input();
  drop_takers_that_left();
  chunk_ = std::move(bytes);
  read_ += chunk_.size();
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
  std::erase_if(takers_, [this](const TakerPtr& taker) {
    pollfd p{taker->pipe.native_handle(), 0, 0};
    const bool left = ::poll(&p, 1, 0) == 1 && (p.revents & POLLERR) != 0;
    if (left) note_taken(*taker);
    return left;
  });
}

void StdinPump::on_readable() {
  if (ended_) return;
  drop_takers_that_left();
  if (nobody()) return;
  // A source that we share stays blocking, and another process may have read it first.
  if (pollable_ && source_ == given_ && !is_readable(source_)) return read_more();
  if (chunk_.size() == piece_) grow();
  chunk_.resize(piece_);
  const ssize_t n = ::read(source_, chunk_.data(), chunk_.size());
  const int err = errno;
  chunk_.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  read_ += chunk_.size();
  for (const auto& taker : takers_) taker->sent = 0;
  if (n > 0) {
    on_read_();
    return hand_out();
  }
  if (n < 0 && (err == EAGAIN || err == EINTR)) return read_more();
  if (n < 0 && err == EIO && ::isatty(source_)) return wait_for_foreground();
  end_of_input();
}

// All have taken a whole piece: they go on reading.
void StdinPump::grow() { piece_ = std::min(2 * piece_, kLargestPiece); }

bool StdinPump::all_served() const {
  return std::ranges::all_of(
             takers_,
             [&](const auto& taker) { return taker->sent == chunk_.size() && taker->ready; }) &&
         std::ranges::all_of(hosts_, [](const auto& host) { return host.second; });
}

// A shell's `fg` sends SIGCONT to a stopped job, but nothing to a running one.
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
    note_taken(read_ - chunk_.size(), read_);
    give_(host, chunk_);
  }
  const auto now = takers_;  // a taker that fails leaves the list
  for (const auto& taker : now) hand_out_to(taker);
}

void StdinPump::hand_out_to(const TakerPtr& taker) {
  const int pipe = taker->pipe.native_handle();
  const std::size_t room = std::min(chunk_.size(), kLargestPiece);
  if (room > taker->room) {
    ::fcntl(pipe, F_SETPIPE_SZ, static_cast<int>(room));  // a smaller pipe works, too
    taker->room = room;
  }
  while (taker->sent < chunk_.size()) {
    const ssize_t n = ::write(pipe, chunk_.data() + taker->sent, chunk_.size() - taker->sent);
    if (n > 0) {
      taker->sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      return await_room(taker, [this, taker] { hand_out_to(taker); });
    } else if (errno != EINTR) {
      leave(taker);  // it has closed its stdin or has ended
      return read_soon();
    }
  }
  taker->ready = false;
  await_room(taker, [this, taker] {
    taker->ready = true;
    read_soon();
  });
}

void StdinPump::await_room(const TakerPtr& taker, std::function<void()> then) {
  taker->pipe.async_wait(asio::posix::stream_descriptor::wait_write,
                         [taker, then = std::move(then)](asio::error_code ec) {
                           if (!ec && taker->pipe.is_open()) then();
                         });
}

void StdinPump::leave(const TakerPtr& taker) {
  note_taken(*taker);
  takers_.remove(taker);
}

void StdinPump::read_soon() {
  if (all_served()) asio::post(loop_, [this] { read_more(); });
}

}  // namespace dlaunch
