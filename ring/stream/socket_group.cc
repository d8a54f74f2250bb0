#include "ring/stream/socket_group.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/cpus.h"
#include "base/failpoint.h"
#include "base/round_trip.h"
#include "base/socket.h"

namespace dlaunch {
namespace {

constexpr Duration kLookAfter = std::chrono::seconds(5);

// Data that waits in one socket cannot go by another one.
void hold_back_little(int fd) {
  constexpr int kBytes = 16 << 10;
  const Carrier carrier(fd);
  setsockopt(carrier.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kBytes, sizeof kBytes);
}

}  // namespace

Result<std::unique_ptr<SocketGroup>> SocketGroup::open(int rank, int ranks, std::uint64_t round,
                                                       std::vector<UniqueFd> sockets,
                                                       AbortFlag& abort,
                                                       const StreamOptions& options) {
  DL_ASSERT(rank >= 0 && rank < ranks && sockets.size() == static_cast<std::size_t>(ranks));
  const int local_ranks = options.local_ranks > 0 ? options.local_ranks : ranks;
  const int cores =
      options.usable_cores > 0 ? options.usable_cores : std::max(1, count_cpus(own_cpus()));
  const int agreed = options.agreed_cores > 0 ? options.agreed_cores : cores;
  std::unique_ptr<SocketGroup> group(
      new SocketGroup(rank, ranks, round, abort, local_ranks <= cores, agreed, options));
  for (int r = 0; r < ranks; ++r) {
    UniqueFd& socket = sockets[static_cast<std::size_t>(r)];
    if (r == rank || !socket) continue;
    if (auto ok = group->attach({.peer = r, .first = std::move(socket)}); !ok) return ok.error();
  }
  // Shared with the flag, which keeps its wakers for ever, and with the source.
  group->wake_ = std::make_shared<UniqueFd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!*group->wake_) return errno_error("eventfd", errno);
  const auto waker = [wake = group->wake_] { eventfd_write(wake->get(), 1); };
  abort.on_raise(waker);
  if (options.source != nullptr) options.source->on_socket(waker);
  return group;
}

Result<void> SocketGroup::attach(NewSockets sockets) {
  if (!sockets.first) {
    Error lacking = errno_error(fmt::format("open a socket to rank {}", sockets.peer), EMFILE);
    lacking.what += ": is 'ulimit -n' too low on one of the two ranks?";
    return lacking;
  }
  if (auto ok = prepare(sockets.peer, sockets.first.get()); !ok) return ok;
  if (!sockets.more.empty()) hold_back_little(sockets.first.get());
  auto peer = std::make_unique<StreamPeer>(std::move(sockets.first), round_);
  for (UniqueFd& socket : sockets.more) {
    hold_back_little(socket.get());
    if (auto ok = prepare(sockets.peer, socket.get()); !ok) return ok;
    peer->sockets().add(std::move(socket));
  }
  peer->sockets().use(used_);
  peers_[static_cast<std::size_t>(sockets.peer)] = std::move(peer);
  return {};
}

Result<void> SocketGroup::attach_all(std::vector<NewSockets> come) {
  for (NewSockets& sockets : come) {
    failpoint("socket_group.attaches");
    if (auto ok = attach(std::move(sockets)); !ok) return ok;
  }
  return {};
}

void SocketGroup::close_in_child() const {
  for (const auto& peer : peers_) {
    for (std::size_t i = 0; peer && i < peer->sockets().sockets(); ++i) {
      ::close(peer->sockets().fd(i));
    }
  }
}

Result<void> SocketGroup::prepare(int peer, int fd) const {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return errno_error(fmt::format("make the socket to rank {} non-blocking", peer), errno);
  }
  // Fails on AF_UNIX, which does not delay anyway.
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  keep_alive(fd);
  return {};
}

void SocketGroup::use(std::size_t sockets) {
  used_ = sockets;
  for (const auto& peer : peers_) {
    if (peer) peer->sockets().use(sockets);
  }
}

void SocketGroup::begin() {
  waited_ = false;
  idle_since_ = {};
}

bool SocketGroup::may_poll_on(TimePoint now) {
  waited_ = true;
  if (idle_since_ == TimePoint{}) {
    idle_since_ = now;
    turns_ = 0;
    looked_ = false;
  }
  if (now - idle_since_ > kSpin || !spin_.pays()) return false;
  // The awaited rank, or another thread of this rank, may need this very core.
  if (!own_core_ || (++turns_ % kTurnsPerOffer == 0 && !leave_shared_core(now))) offer_core();
  return true;
}

// The kernel hands a packet from a rank of this host to its receiver on the sender's core.
bool SocketGroup::leave_shared_core(TimePoint now) {
  if (now - looked_at_cores_ < kCoresLook) return false;
  looked_at_cores_ = now;
  const int own = current_core();
  bool shared = false, goes_first = false;
  std::vector<int> cores;
  for (int d = 1; d < ranks_; ++d) {
    int core = -1;
    socklen_t size = sizeof core;
    const int peer = at_distance(d);
    if (!has(peer)) continue;
    const int fd = (*this)[peer].sockets().fd();
    if (getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &core, &size) != 0) continue;
    cores.push_back(core);
    if (core != own) continue;
    shared = true;
    goes_first |= rank_ > peer;
  }
  return spread_.move_away_from(now, shared ? own : -1, this, goes_first, [&] { return cores; });
}

void SocketGroup::watch(int peer, Interest interest) {
  const StreamPeer& from = (*this)[peer];
  // A header that is not admitted stays; reading on behind it would not help.
  const bool reads = !from.has_header() && !from.ended();
  for (std::size_t i = 0; i < from.sockets().sockets(); ++i) {
    short events = 0;
    if (reads && from.sockets().awaits(i)) events |= POLLIN;
    if (interest.writes && from.sockets().blocked(i)) events |= POLLOUT;
    if (events == 0) continue;
    poll_.push_back({.fd = from.sockets().fd(i), .events = events, .revents = 0});
    polled_.push_back({peer, i});
  }
}

// The goodbye of a peer that has left, which raises no flag, may come later than the end of its
// sockets.
bool SocketGroup::told_of_loss(int peer) const {
  const TimePoint until = steady_now() + AbortFlag::kCauseOfLoss;
  while (has_left_ && !has_left_(peer) && steady_now() < until) {
    if (abort_.told(std::chrono::milliseconds(20))) return true;
  }
  return abort_.told(AbortFlag::kBetterReason);
}

TimePoint SocketGroup::look_at() const {
  return leaves_host_ && sent_in_vain_ && !looked_ ? idle_since_ + kLookAfter : kNever;
}

// Small packets may pass where large ones do not, and nothing else would show that.
void SocketGroup::look_for_losses(TimePoint now) {
  if (now < look_at()) return;
  looked_ = true;
  for (int r = 0; r < ranks_; ++r) {
    if (!has(r) || in_vain_.contains(r)) continue;
    const SocketBundle& sockets = (*this)[r].sockets();
    for (std::size_t i = 0; i < sockets.sockets(); ++i) {
      if (resends_in_vain(sockets.fd(i)) && in_vain_.insert(r).second) sent_in_vain_(r);
    }
  }
}

Result<SocketGroup::Waited> SocketGroup::sleep(TimePoint now, TimePoint deadline, int extra) {
  poll_.push_back({.fd = wake_->get(), .events = POLLIN, .revents = 0});
  poll_.push_back({.fd = extra, .events = POLLIN, .revents = 0});
  const TimePoint until = std::min(deadline, look_at());
  if (poll(poll_.data(), poll_.size(), poll_timeout_ms(now, until)) < 0 && errno != EINTR) {
    return errno_error("poll", errno);
  }
  if (until < deadline) look_for_losses(steady_now());
  // The waits for the flag look at the flag itself.
  if (eventfd_t rung; poll_[polled_.size()].revents != 0) eventfd_read(wake_->get(), &rung);
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    const short events = poll_[i].revents;
    const bool broken = (events & (POLLERR | POLLHUP | POLLNVAL)) != 0;
    (*this)[polled_[i].peer].sockets().mark(polled_[i].socket, broken || (events & POLLIN) != 0,
                                            broken || (events & POLLOUT) != 0);
  }
  return Waited::ready;
}

}  // namespace dlaunch
