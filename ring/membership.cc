#include "ring/membership.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/quiet_thread.h"
#include "base/short_turns.h"
#include "base/socket.h"

namespace dlaunch {
namespace {

constexpr Duration kProgressInterval = std::chrono::milliseconds(100);

// The last round of this process. A second connection goes on from there: the agent ignores a
// process that leaves a round it was not in.
std::atomic<std::int32_t> last_round{0};

}  // namespace

Result<std::unique_ptr<Membership>> Membership::connect(const std::string& socket, int worker) {
  auto fd = connect_unix_path(socket, SOCK_SEQPACKET);
  if (!fd) return fd.error();
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return errno_error("eventfd", errno);
  std::unique_ptr<Membership> membership(new Membership(std::move(*fd), std::move(stop), worker));
  auto thread = start_quiet_thread([self = membership.get()] { self->read(); });
  if (!thread) return thread.error();
  membership->thread_ = std::move(*thread);
  return membership;
}

Membership::Membership(UniqueFd socket, UniqueFd stop, int worker)
    : socket_(std::move(socket)), stop_(std::move(stop)), worker_(worker) {
  current_.round = last_round;
}

Membership::~Membership() {
  if (!thread_.joinable()) return;
  const std::string goodbye = encode(Goodbye{worker_});
  (void)::send(socket_.get(), goodbye.data(), goodbye.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

Result<RoundNotice> Membership::next_round(std::uint64_t version, std::string why) {
  std::unique_lock lock(mutex_);
  const std::string ready = encode(Ready{worker_, current_.round, version, std::move(why)});
  if (::send(socket_.get(), ready.data(), ready.size(), MSG_NOSIGNAL) < 0 && closed_.empty()) {
    return errno_error("ask the launcher for the next round", errno);
  }
  changed_.wait(lock, [this] { return next_ || !closed_.empty(); });
  if (!next_) return Error{.code = Errc::io, .what = closed_};
  current_ = *std::exchange(next_, std::nullopt);
  last_round = current_.round;
  told_ = {};  // a change of the job waits for the first report of a round
  return current_;
}

void Membership::progress(std::uint64_t version) {
  const TimePoint now = steady_now();
  if (now - told_ < kProgressInterval) return;
  told_ = now;
  const std::string packet = encode(ProgressNotice{worker_, version});
  (void)::send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool Membership::over() const {
  const std::lock_guard lock(mutex_);
  return why_over().has_value();
}

void Membership::on_over(Tell tell, Ends ends) {
  const std::lock_guard lock(mutex_);
  tell_ = std::move(tell);
  told_ends_ = ends;
  tell_if_over();
}

std::optional<Error> Membership::why_over() const {
  if (!closed_.empty()) return Error{.code = Errc::peer_lost, .what = closed_};
  if (fence_.round <= current_.round) return std::nullopt;
  std::string what = fmt::format("round {} is over: ", current_.round);
  what += fence_.lost < 0 ? "the job changes" : fmt::format("rank {} was lost", fence_.lost);
  return Error{.code = Errc::peer_lost, .what = std::move(what), .rank = fence_.lost};
}

// If no member was lost, members leave at their next commit.
void Membership::tell_if_over() {
  const auto why = why_over();
  const bool any = told_ends_ == Ends::all || !closed_.empty();
  if (tell_ && why && (any || fence_.lost >= 0)) tell_(*why);
}

void Membership::read() {
  ask_for_short_turns();
  pollfd fds[] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (true) {
    if (::poll(fds, 2, -1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) return;
    if (fds[0].revents != 0 && !take_packet()) return;
  }
}

bool Membership::take_packet() {
  char packet[kMaxWorkerMessage];
  const ssize_t n = ::recv(socket_.get(), packet, sizeof packet, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) return close("the launcher has gone"), false;
  const auto message = decode_worker_message({packet, static_cast<std::size_t>(n)});
  if (!message) return close("the launcher sent " + message.error().what), false;
  take(*message);
  return true;
}

void Membership::take(const WorkerMessage& message) {
  const std::lock_guard lock(mutex_);
  if (const auto* round = std::get_if<RoundNotice>(&message)) {
    next_ = *round;
  } else if (const auto* fence = std::get_if<FenceNotice>(&message)) {
    // A loss stays a loss when another change follows.
    const bool lost_before = fence_.round > current_.round && fence_.lost >= 0;
    const int lost = fence->lost < 0 && lost_before ? fence_.lost : fence->lost;
    fence_ = {fence->round, lost};
    tell_if_over();
  }
  changed_.notify_all();
}

void Membership::close(std::string why) {
  const std::lock_guard lock(mutex_);
  closed_ = std::move(why);
  tell_if_over();
  changed_.notify_all();
}

}  // namespace dlaunch
