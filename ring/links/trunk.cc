#include "ring/links/trunk.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <limits>
#include <utility>

#include "base/failpoint.h"
#include "base/passed_descriptors.h"
#include "base/quiet_thread.h"
#include "base/short_turns.h"
#include "base/socket.h"
#include "rendezvous/tls_tunnel.h"
#include "ring/links/descriptor_limit.h"

namespace dlaunch {
namespace {

constexpr auto kResetPatience = std::chrono::milliseconds(20);
constexpr int kResetLookMs = 5;
constexpr int kLookMs = 500;
constexpr Duration kTunnelPatience = std::chrono::milliseconds(20);
constexpr std::uint32_t kStopTag = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kDeathsTag = kStopTag - 1;
using PassedOne = PassedDescriptors<1>;  // with one call of sendmsg()

}  // namespace

Trunk::Trunk(int rank, std::vector<Peer> peers) : rank_(rank) {
  for (auto& peer : peers) {
    Watched& added = peers_.emplace_back();
    added.who = std::move(peer.who);
    added.link = std::move(peer.link);
  }
}

Result<std::shared_ptr<Trunk>> Trunk::make(int rank, std::vector<Peer> peers, Duration silence) {
  std::shared_ptr<Trunk> trunk(new Trunk(rank, std::move(peers)));
  trunk->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  trunk->stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  trunk->deaths_event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!trunk->epoll_ || !trunk->stop_ || !trunk->deaths_event_) {
    return errno_error("control thread: epoll", errno);
  }
  auto add = [&](int fd, std::uint32_t tag) {
    epoll_event event{.events = EPOLLIN, .data = {.u32 = tag}};
    return ::epoll_ctl(trunk->epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  bool added = add(trunk->stop_.get(), kStopTag) && add(trunk->deaths_event_.get(), kDeathsTag);
  for (std::size_t r = 0; r < trunk->peers_.size(); ++r) {
    Watched& peer = trunk->peers_[r];
    if (!peer.link) continue;
    if (silence > Duration::zero()) end_when_silent(peer.link.get(), silence);
    peer.carried = Carrier(peer.link.get()).fd() != peer.link.get();
    trunk->carried_ |= peer.carried;
    added = added && add(peer.link.get(), static_cast<std::uint32_t>(r));
  }
  if (!added) return errno_error("control thread: epoll_ctl", errno);
  return trunk;
}

Result<void> Trunk::run() {
  auto thread = start_quiet_thread([this] { main(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return {};
}

Trunk::~Trunk() {
  deaths_.reset();
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void Trunk::main() try {
  ask_for_short_turns();
  epoll_event events[16];
  while (true) {
    const int patience_ms = reset_peers_.empty() ? kLookMs : kResetLookMs;
    const TimePoint looks = steady_now();
    const int n = ::epoll_wait(epoll_.get(), events, 16, patience_ms);
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u32 == kStopTag) return;
      on_event(events[i].data.u32, events[i].events);
    }
    lose_reset(looks);
    look();
  }
} catch (const std::exception&) {
  // No memory, not even for a sentence: without the trunk's watch no communicator may go on.
  const std::lock_guard lock(channels_mutex_);
  for (auto& [id, open] : channels_) {
    open.channel->on_failure({.code = Errc::io, .what = "out of memory"});
  }
}

void Trunk::on_event(std::uint32_t tag, std::uint32_t events) {
  if (tag == kDeathsTag) return on_deaths();
  const int peer = static_cast<int>(tag);
  if ((events & EPOLLOUT) != 0) send_more(peer);
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) on_readable(peer);
}

void Trunk::look() {
  const TimePoint now = steady_now();
  if (now - looked_at_ < std::chrono::milliseconds(kLookMs)) return;
  looked_at_ = now;
  const std::lock_guard lock(channels_mutex_);
  for (auto& [id, open] : channels_) open.channel->on_look();
}

// -- Channels

void Trunk::open(std::uint64_t id, Channel& channel, const std::vector<int>& members) {
  const std::lock_guard lock(channels_mutex_);
  channels_[id] = {&channel, std::set<int>(members.begin(), members.end())};
  for (HeldFrame& held : held_.take(id)) {
    if (std::find(members.begin(), members.end(), held.peer) == members.end()) continue;
    held.frame.text = held.text;
    channel.on_frame(held.peer, held.frame, std::move(held.descriptor));
  }
  for (const int peer : members) {
    if (!at(peer).ended.empty()) channel.on_end(peer, at(peer).ended);
  }
}

void Trunk::close(std::uint64_t id) {
  const std::lock_guard lock(channels_mutex_);
  channels_.erase(id);
}

// -- Frames of the peers

// False: nothing to read, now or ever.
bool Trunk::on_readable(int peer) {
  Watched& from = at(peer);
  char buffer[4096];
  PassedOne passed;
  iovec payload{buffer, sizeof buffer};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  passed.receive_with(message);
  allow_descriptors(1);  // a peer may pass one at any time, and without room it would be lost
  const ssize_t n = ::recvmsg(from.link.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) {
    if (n == 0) on_end(peer);
    if (n < 0 && errno != EAGAIN) on_broken(peer, errno);
    return false;
  }
  auto come = PassedOne::taken_from(message);
  // Empty: this process had no room for a descriptor.
  if (come.empty() && (message.msg_flags & MSG_CTRUNC) != 0) come.emplace_back();
  for (UniqueFd& descriptor : come) from.descriptors.push_back(std::move(descriptor));
  from.input.append(buffer, static_cast<std::size_t>(n));
  std::string_view rest = from.input;
  bool sense = true;
  while (true) {
    const auto frame = take_link_frame(rest, ranks());
    sense = frame.has_value();
    if (!sense || !frame->has_value()) break;
    on_frame(peer, **frame);
  }
  // A descriptor comes with the first bytes of its frame, so none may be left after all frames are
  // read.
  if (!sense || (rest.empty() && !from.descriptors.empty())) {
    rest = {};
    from.descriptors.clear();
    on_nonsense(peer);
  }
  from.input.erase(0, from.input.size() - rest.size());
  return true;
}

void Trunk::on_frame(int peer, const LinkFrame& frame) {
  failpoint("links.frame");
  UniqueFd descriptor;
  if (frame.carries_descriptor()) {
    auto& come = at(peer).descriptors;
    if (come.empty()) return on_nonsense(peer);
    descriptor = std::move(come.front());
    come.pop_front();
  }
  if (frame.type == LinkFrame::Type::memory) {
    if (take_memory_) take_memory_(peer, frame.seq, std::move(descriptor));
    return;
  }
  const std::lock_guard lock(channels_mutex_);
  const auto open = channels_.find(frame.channel);
  if (open == channels_.end()) {
    held_.hold(peer, frame, std::move(descriptor));
  } else if (open->second.members.contains(peer)) {
    open->second.channel->on_frame(peer, frame, std::move(descriptor));
  }
}

void Trunk::on_nonsense(int peer) {
  const std::lock_guard lock(channels_mutex_);
  for (auto& [id, open] : channels_) {
    if (open.members.contains(peer)) open.channel->on_nonsense(peer);
  }
}

// -- The end of a peer

void Trunk::on_end(int peer) {
  failpoint("links.end_seen");
  if (at(peer).carried) return on_broken(peer, ECONNRESET);
  stop_watching(peer);
  end(peer, "its connection ended");
}

// A reset discards the peer's unread words: a survivor leaves it when it ends without reading our
// own words. The end of the rank that it mourned comes by itself, if it has not yet.
void Trunk::on_broken(int peer, int os_errno) {
  stop_watching(peer);
  const bool silent = os_errno == ETIMEDOUT || os_errno == EHOSTUNREACH || os_errno == ENETUNREACH;
  if (silent) return end(peer, "its host does not answer any more");
  reset_peers_.emplace(peer, steady_now());
}

// Declares reset peers lost, however much the others send meanwhile. By then all earlier input has
// been read.
void Trunk::lose_reset(TimePoint looked) {
  for (auto reset = reset_peers_.begin(); reset != reset_peers_.end();) {
    const auto [peer, when] = *reset;
    if (looked - when < kResetPatience) {
      ++reset;
      continue;
    }
    reset = reset_peers_.erase(reset);
    end(peer, "its connection ended");
  }
}

void Trunk::end(int peer, std::string_view how) {
  const std::lock_guard lock(channels_mutex_);
  if (at(peer).ended.empty()) at(peer).ended = how;
  held_.drop(peer);
  for (auto& [id, open] : channels_) {
    if (open.members.contains(peer)) open.channel->on_end(peer, how);
  }
}

void Trunk::died(int peer) {
  {
    const std::lock_guard lock(dead_mutex_);
    at(peer).dead = true;
  }
  ::eventfd_write(deaths_event_.get(), 1);
}

void Trunk::on_deaths() {
  eventfd_t count;
  ::eventfd_read(deaths_event_.get(), &count);
  for (int peer = 0; peer < ranks(); ++peer) {
    {
      const std::lock_guard lock(dead_mutex_);
      if (!std::exchange(at(peer).dead, false)) continue;
    }
    // Reads its last words before its end: it may have left, or ended because it mourned another
    // rank.
    while (on_readable(peer)) {
    }
    on_end(peer);
  }
}

void Trunk::stop_watching(int peer) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, at(peer).link.get(), nullptr);
}

// -- Frames of this rank

void Trunk::tell(int peer, std::string_view frame, int descriptor) {
  const std::lock_guard lock(send_mutex_);
  Watched& to = at(peer);
  if (!to.link) return;
  failpoint("links.tell");
  Told told{.bytes = std::string(frame), .descriptor = {}};
  if (to.output.empty() && send_some(to, told.bytes, descriptor)) return;
  if (descriptor >= 0) {
    told.descriptor.reset(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!told.descriptor) mark_lacking(told.bytes);
  }
  to.output.push_back(std::move(told));
  if (to.output.size() == 1) await_writable(peer, true);
}

// True: the kernel has all of it, or the peer has ended. `bytes` and `descriptor` are what is left
// to send.
bool Trunk::send_some(const Watched& to, std::string& bytes, int& descriptor) {
  while (!bytes.empty()) {
    PassedOne passed;
    iovec payload{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &payload;
    message.msg_iovlen = 1;
    if (descriptor >= 0) passed.send_with(message, {&descriptor, 1});
    const ssize_t n = ::sendmsg(to.link.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno != EAGAIN && errno != ETOOMANYREFS;
    descriptor = -1;  // it went with the first bytes
    bytes.erase(0, static_cast<std::size_t>(n));
  }
  return true;
}

void Trunk::send_more(int peer) {
  const std::lock_guard lock(send_mutex_);
  Watched& to = at(peer);
  while (!to.output.empty()) {
    Told& next = to.output.front();
    int descriptor = next.descriptor.get();
    const bool sent = send_some(to, next.bytes, descriptor);
    if (descriptor < 0) next.descriptor.reset();
    if (!sent) break;
    to.output.pop_front();
  }
  if (to.output.empty()) await_writable(peer, false);
}

void Trunk::await_writable(int peer, bool wanted) {
  epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<std::uint32_t>(peer)}};
  if (wanted) event.events |= EPOLLOUT;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, at(peer).link.get(), &event);
}

void Trunk::flush() const {
  if (carried_) flush_tunnels(kTunnelPatience);
}

void Trunk::close_in_child() {
  deaths_.release();  // NOLINT: its thread is not here
  for (auto& peer : peers_) {
    peer.link.reset();
    peer.output.clear();
    peer.descriptors.clear();
  }
  epoll_.reset();
  stop_.reset();
  deaths_event_.reset();
}

}  // namespace dlaunch
