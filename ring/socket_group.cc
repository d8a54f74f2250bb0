#include "ring/socket_group.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/round_trip.h"
#include "base/socket.h"

namespace dlaunch {
namespace {

constexpr int kRootCauseMs = 5;

int cores_of_this_process() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Result<std::unique_ptr<SocketGroup>> SocketGroup::open(int rank, int ranks, std::uint64_t round,
                                                       std::vector<UniqueFd> sockets,
                                                       AbortFlag& abort,
                                                       const StreamOptions& options) {
  DL_ASSERT(rank >= 0 && rank < ranks && sockets.size() == static_cast<std::size_t>(ranks));
  const int local_ranks = options.local_ranks > 0 ? options.local_ranks : ranks;
  const int cores = options.usable_cores > 0 ? options.usable_cores : cores_of_this_process();
  std::unique_ptr<SocketGroup> group(new SocketGroup(rank, ranks, abort, local_ranks <= cores));
  group->peers_.resize(sockets.size());
  for (int r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    auto& socket = sockets[static_cast<std::size_t>(r)];
    const int fd = socket.get();
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
      return errno_error(fmt::format("make the socket to rank {} non-blocking", r), errno);
    }
    // Fails on AF_UNIX, which does not delay anyway.
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    group->leaves_host_ |= leads_to_other_host(fd);
    group->peers_[static_cast<std::size_t>(r)] =
        std::make_unique<StreamPeer>(std::move(socket), round);
  }
  // Shared with the flag, which keeps its wakers for ever.
  group->wake_ = std::make_shared<UniqueFd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!*group->wake_) return errno_error("eventfd", errno);
  abort.on_raise([wake = group->wake_] { eventfd_write(wake->get(), 1); });
  group->poll_.assign(sockets.size() + 1, {.fd = -1, .events = POLLIN, .revents = 0});
  return group;
}

Duration SocketGroup::round_trip() const {
  Duration longest{};
  for (const auto& peer : peers_) {
    if (!peer || !leads_to_other_host(peer->fd())) continue;
    longest = std::max(longest, shortest_round_trip(peer->fd()));
  }
  return longest;
}

void SocketGroup::begin() { started_ = idle_since_ = {}; }

bool SocketGroup::may_poll_on(TimePoint now) {
  if (idle_since_ == TimePoint{}) {
    idle_since_ = now;
    turns_ = 0;
  }
  if (now - idle_since_ > kSpin || !spin_.pays()) return false;
  // Whoever is waited for, or a thread of this rank's own, may want this very core.
  if (!own_core_ || (++turns_ % kTurnsPerLook == 0 && !leave_shared_core())) offer_core();
  return true;
}

// A packet from a rank of this host is handed to its receiver on the sender's core.
bool SocketGroup::leave_shared_core() {
  for (int d = 1; d < ranks_; ++d) {
    int core = -1;
    socklen_t size = sizeof core;
    const int fd = (*this)[at_distance(d)].fd();
    if (getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &core, &size) != 0) continue;
    if (spread_.move_away_from(core)) return true;
  }
  return false;
}

void SocketGroup::watch(int peer, Interest interest) {
  const StreamPeer& socket = (*this)[peer];
  short events = 0;
  // A header that could not be admitted stays; reading on behind it would not help.
  if (!socket.has_header() && !socket.ended()) events |= POLLIN;
  if (!socket.writable() && interest.writes) events |= POLLOUT;
  poll_[static_cast<std::size_t>(peer)] = {
      .fd = events != 0 ? socket.fd() : -1, .events = events, .revents = 0};
}

Result<SocketGroup::Waited> SocketGroup::sleep(TimePoint now, TimePoint deadline, int extra) {
  if (started_ == TimePoint{}) started_ = now;
  poll_[static_cast<std::size_t>(rank_)].fd = wake_->get();
  poll_.back().fd = extra;
  if (poll(poll_.data(), poll_.size(), poll_timeout_ms(now, deadline)) < 0 && errno != EINTR) {
    return errno_error("poll", errno);
  }
  for (int d = 1; d < ranks_; ++d) {
    const int r = at_distance(d);
    const pollfd& polled = poll_[static_cast<std::size_t>(r)];
    if (polled.fd < 0) continue;
    const bool broken = (polled.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
    (*this)[r].mark(broken || (polled.revents & POLLIN) != 0,
                    broken || (polled.revents & POLLOUT) != 0);
  }
  return Waited::ready;
}

bool SocketGroup::told() {
  pollfd wake{.fd = wake_->get(), .events = POLLIN, .revents = 0};
  return poll(&wake, 1, kRootCauseMs) > 0 && abort_.raised();
}

}  // namespace dlaunch
