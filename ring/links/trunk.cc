#include "ring/links/trunk.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
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
#include "base/log.h"
#include "base/passed_descriptors.h"
#include "base/quiet_thread.h"
#include "base/short_turns.h"
#include "base/socket.h"
#include "rendezvous/tls_tunnel.h"
#include "ring/links/descriptor_limit.h"
#include "ring/links/late_source.h"

namespace dlaunch {
namespace {

constexpr auto kResetPatience = std::chrono::milliseconds(20);
constexpr int kResetLookMs = 5;
constexpr int kLookMs = 500;
constexpr Duration kTunnelPatience = std::chrono::milliseconds(20);
constexpr Duration kDrainPatience = std::chrono::seconds(1);
constexpr std::uint32_t kStopTag = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kDeathsTag = kStopTag - 1;
constexpr std::uint32_t kLateTag = kStopTag - 2;
// Beside the number of a rank: its second link.
constexpr std::uint32_t kSecond = std::uint32_t{1} << 30;
using PassedOne = PassedDescriptors<1>;  // with one call of sendmsg()

}  // namespace

Trunk::Trunk(int rank, std::vector<Peer> peers, Duration silence) : rank_(rank), silence_(silence) {
  for (auto& peer : peers) {
    Watched& added = peers_.emplace_back();
    added.who = std::move(peer.who);
    added.first.fd = std::move(peer.link);
  }
}

Result<std::shared_ptr<Trunk>> Trunk::make(int rank, std::vector<Peer> peers, Duration silence) {
  std::shared_ptr<Trunk> trunk(new Trunk(rank, std::move(peers), silence));
  trunk->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  trunk->stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  trunk->deaths_event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!trunk->epoll_ || !trunk->stop_ || !trunk->deaths_event_) {
    return errno_error("control thread: epoll", errno);
  }
  bool added =
      trunk->watch(trunk->stop_, kStopTag) && trunk->watch(trunk->deaths_event_, kDeathsTag);
  for (std::size_t r = 0; r < trunk->peers_.size(); ++r) {
    Watched& peer = trunk->peers_[r];
    const UniqueFd& fd = peer.first.fd;
    if (!fd) continue;
    added = added && trunk->prepare(static_cast<int>(r), fd, static_cast<std::uint32_t>(r));
  }
  if (!added) return errno_error("control thread: epoll_ctl", errno);
  return trunk;
}

// Without delay: a frame that waits for the acknowledgement of another one would be lost if this
// process ended meanwhile. That fails for AF_UNIX, which does not delay.
bool Trunk::prepare(int peer, const UniqueFd& fd, std::uint32_t tag) {
  const int on = 1;
  ::setsockopt(Carrier(fd.get()).fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (silence_ > Duration::zero()) end_when_silent(fd.get(), silence_);
  if (Carrier(fd.get()).fd() != fd.get()) at(peer).carried = carried_ = true;
  return watch(fd, tag);
}

bool Trunk::watch(const UniqueFd& fd, std::uint32_t tag) const {
  epoll_event event{.events = EPOLLIN, .data = {.u32 = tag}};
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
}

Result<void> Trunk::connect_later(std::unique_ptr<LateSource> late) {
  late_ = std::move(late);
  epoll_event event{.events = EPOLLIN, .data = {.u32 = kLateTag}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, late_->descriptor(), &event) == 0) return {};
  return errno_error("control thread: epoll_ctl", errno);
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
    send_passed();
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
  if (tag == kLateTag) return take_late_links();
  const int peer = static_cast<int>(tag & ~kSecond);
  if ((events & EPOLLOUT) != 0) send_more(peer);
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0) return;
  on_readable(peer, (tag & kSecond) != 0 ? at(peer).second : at(peer).first);
}

void Trunk::look() {
  const TimePoint now = steady_now();
  if (now - looked_at_ < std::chrono::milliseconds(kLookMs)) return;
  looked_at_ = now;
  take_late_links();
  connect_waiting();
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
bool Trunk::on_readable(int peer, Link& from) {
  int fd = -1;
  {
    const std::lock_guard lock(send_mutex_);  // another thread may just have made the link
    fd = from.fd.get();
  }
  if (fd < 0 || from.in_use) return false;
  char buffer[4096];
  PassedOne passed;
  iovec payload{buffer, sizeof buffer};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  passed.receive_with(message);
  allow_descriptors(1);  // a peer may pass one at any time, and without room it would be lost
  const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) {
    const int os_errno = n < 0 ? errno : 0;
    if (os_errno == EAGAIN) return false;
    stop_watching(fd);
    if (os_errno == 0) {
      on_end(peer);
    } else {
      on_broken(peer, os_errno);
    }
    return false;
  }
  auto come = PassedOne::taken_from(message);
  // Empty: this process had no room for a descriptor.
  if (come.empty() && (message.msg_flags & MSG_CTRUNC) != 0) come.emplace_back();
  for (UniqueFd& descriptor : come) from.descriptors.push_back(std::move(descriptor));
  from.input.append(buffer, static_cast<std::size_t>(n));
  take_frames(peer, from);
  return true;
}

void Trunk::take_frames(int peer, Link& from) {
  std::string_view rest = from.input;
  bool sense = true;
  from.in_use = true;
  while (true) {
    const auto frame = take_link_frame(rest, ranks());
    sense = frame.has_value();
    if (!sense || !frame->has_value()) break;
    on_frame(peer, from, **frame);
  }
  from.in_use = false;
  // A descriptor comes with the first bytes of its frame, so none may be left after all frames are
  // read.
  if (!sense || (rest.empty() && !from.descriptors.empty())) {
    rest = {};
    from.descriptors.clear();
    on_nonsense(peer);
  }
  from.input.erase(0, from.input.size() - rest.size());
}

void Trunk::on_frame(int peer, Link& link, const LinkFrame& frame) {
  failpoint("links.frame");
  UniqueFd descriptor;
  if (frame.carries_descriptor()) {
    auto& come = link.descriptors;
    if (come.empty()) return on_nonsense(peer);
    descriptor = std::move(come.front());
    come.erase(come.begin());
  }
  if (frame.type == LinkFrame::Type::memory) {
    if (take_memory_) take_memory_(peer, frame.seq, std::move(descriptor));
    return;
  }
  // A goodbye that came by way of others may be faster than what its rank said before on a link
  // with this one.
  if (frame.type == LinkFrame::Type::goodbye && frame.number > 0 && frame.origin != peer) {
    take_late_links();
    read_all(frame.origin);
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

// The thread still reads the other link of the peer: with tunnels, or over TCP, what the peer wrote
// there before both ended may come later than the end of this one.
void Trunk::on_end(int peer) {
  take_late_links();
  if (!mark_over(peer)) return;
  failpoint("links.end_seen");
  if (at(peer).carried) return on_reset(peer);
  read_all(peer);
  end(peer, "its connection ended");
}

// The other link of an ended rank may have its last words.
void Trunk::read_all(int peer) {
  for (Link* const link : {&at(peer).first, &at(peer).second}) {
    while (on_readable(peer, *link)) {
    }
  }
}

// A reset discards the peer's unread words: a survivor leaves it when it ends without reading our
// own words. The end of the rank that it mourned comes by itself, if it has not yet.
void Trunk::on_broken(int peer, int os_errno) {
  take_late_links();
  if (!mark_over(peer)) return;
  const bool silent = os_errno == ETIMEDOUT || os_errno == EHOSTUNREACH || os_errno == ENETUNREACH;
  if (silent) return end(peer, "its host does not answer any more");
  read_all(peer);
  on_reset(peer);
}

void Trunk::on_reset(int peer) { reset_peers_.emplace(peer, steady_now()); }

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
    read_all(peer);
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
  take_late_links();  // of ranks that have died since they connected
  for (int peer = 0; peer < ranks(); ++peer) {
    {
      const std::lock_guard lock(dead_mutex_);
      if (!std::exchange(at(peer).dead, false)) continue;
    }
    // Reads its last words before its end: it may have left, or ended because it mourned another
    // rank.
    read_all(peer);
    on_end(peer);
  }
}

// False: it has been done before.
bool Trunk::mark_over(int peer) {
  const std::lock_guard lock(send_mutex_);
  return !std::exchange(at(peer).over, true);
}

// A link that has ended would wake the thread again and again. It may have been done before.
void Trunk::stop_watching(int link) const {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link, nullptr);
}

// -- Links that come later

void Trunk::take_late_links() {
  if (!late_) return;
  for (auto& [peer, fd] : late_->accept()) {
    if (at(peer).over) continue;
    if (fd) {
      take_late_link(peer, std::move(fd));
    } else if (refuse(peer)) {
      end(peer, "its process has ended, or a firewall refuses connections");
    }
  }
}

void Trunk::take_late_link(int peer, UniqueFd fd) {
  const std::lock_guard lock(send_mutex_);
  const auto tag = static_cast<std::uint32_t>(peer);
  const bool added = !at(peer).first.fd ? add_link(peer, at(peer).first, std::move(fd), tag)
                     : !at(peer).second.fd
                         ? add_link(peer, at(peer).second, std::move(fd), tag | kSecond)
                         : true;
  if (!added) log_warn("{} has connected, but cannot be heard: no memory", who(peer));
}

// It can no longer be reached. False: that is known, or there is a link, which shows what has
// become of it.
bool Trunk::refuse(int peer) {
  const std::lock_guard lock(send_mutex_);
  if (at(peer).first.fd || at(peer).refused) return false;
  at(peer).refused = true;
  at(peer).output.clear();
  return true;
}

// Under send_mutex_, as the next one. False: it cannot be watched, and is closed.
bool Trunk::add_link(int peer, Link& link, UniqueFd fd, std::uint32_t tag) {
  if (!prepare(peer, fd, tag)) return false;
  link.fd = std::move(fd);
  if (&link == &at(peer).first && !at(peer).output.empty()) await_writable(peer, true);
  return true;
}

// If too many wait for the peer, or this process has no room for a descriptor, a later look tries
// again.
void Trunk::connect(int peer) {
  allow_descriptors(1);
  auto fd = late_->connect(peer);
  if (fd && add_link(peer, at(peer).first, std::move(*fd), static_cast<std::uint32_t>(peer))) {
    return;
  }
  if (!fd && fd.error().os_errno == ECONNREFUSED) {
    at(peer).refused = true;
    at(peer).output.clear();
    return died(peer);
  }
  if (fd || fd.error().os_errno == EAGAIN || std::exchange(warned_, true)) return;
  log_warn("no connection with {} yet: {}; is 'ulimit -n' too low?", who(peer), fd.error().what);
}

void Trunk::connect_waiting() {
  if (!late_) return;
  const std::lock_guard lock(send_mutex_);
  for (int peer = 0; peer < ranks(); ++peer) {
    if (!at(peer).first.fd && !at(peer).output.empty()) connect(peer);
  }
}

// -- Frames of this rank

void Trunk::tell(int peer, std::string_view frame, int descriptor) {
  const std::lock_guard lock(send_mutex_);
  Watched& to = at(peer);
  if (!to.first.fd && (!late_ || peer == rank_ || to.refused)) return;
  if (!to.first.fd) connect(peer);
  if (to.refused) return;
  failpoint("links.tell");
  Told told{.bytes = std::string(frame), .descriptor = {}};
  if (to.first.fd && to.output.empty() && send_some(to, told.bytes, descriptor)) return;
  if (descriptor >= 0) {
    told.descriptor.reset(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!told.descriptor) mark_lacking(told.bytes);
  }
  to.output.push_back(std::move(told));
  if (to.first.fd && to.output.size() == 1) await_writable(peer, true);
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
    const ssize_t n = ::sendmsg(to.first.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
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
  await_writable(peer, !to.output.empty());
}

void Trunk::await_writable(int peer, bool wanted) {
  epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<std::uint32_t>(peer)}};
  if (wanted) event.events |= EPOLLOUT;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, at(peer).first.fd.get(), &event);
}

bool Trunk::has_link(int peer) {
  const std::lock_guard lock(send_mutex_);
  return bool(at(peer).first.fd) && !at(peer).over;
}

void Trunk::pass_on(int peer, std::string_view frame) {
  const std::lock_guard lock(send_mutex_);
  Watched& to = at(peer);
  if (!to.first.fd) return;
  if (to.output.empty() || to.output.back().descriptor) to.output.emplace_back();
  to.output.back().bytes += frame;
  to.passes = passes_ = true;
}

void Trunk::send_passed() {
  std::vector<int> peers;
  {
    const std::lock_guard lock(send_mutex_);
    if (!std::exchange(passes_, false)) return;
    for (int peer = 0; peer < ranks(); ++peer) {
      if (std::exchange(at(peer).passes, false)) peers.push_back(peer);
    }
  }
  for (const int peer : peers) send_more(peer);
}

void Trunk::drain() {
  const auto all_sent = [this] {
    const std::lock_guard lock(send_mutex_);
    return std::all_of(peers_.begin(), peers_.end(), [](const Watched& peer) {
      return peer.refused || peer.over || peer.output.empty();
    });
  };
  const TimePoint until = steady_now() + kDrainPatience;
  while (!all_sent() && steady_now() < until) ::poll(nullptr, 0, 1);
}

void Trunk::flush() const {
  if (carried_) flush_tunnels(kTunnelPatience);
}

void Trunk::close_in_child() {
  deaths_.release();  // NOLINT: its thread is not here
  for (auto& peer : peers_) {
    peer.first.fd.reset();
    peer.second.fd.reset();
    peer.first.descriptors.clear();
    peer.output.clear();
  }
  if (late_) late_->close_in_child();
  epoll_.reset();
  stop_.reset();
  deaths_event_.reset();
}

}  // namespace dlaunch
