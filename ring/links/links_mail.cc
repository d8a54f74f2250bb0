// Links: the bootstrap of a group, and descriptors that its ranks pass to each other.
#include <sys/socket.h>

#include <algorithm>
#include <string>

#include "base/failpoint.h"
#include "ring/links/descriptor_limit.h"
#include "ring/links/links.h"

namespace dlaunch {

// Waits until ready() is true; false at the deadline. In slices, because the parent's end does not
// wake it.
Result<bool> Links::await_mail(std::unique_lock<std::mutex>& lock, TimePoint deadline,
                               const ParentEnd* parent, const std::function<bool()>& ready) {
  constexpr auto kSlice = std::chrono::milliseconds(5);
  while (!ready()) {
    if (abort_.raised()) return abort_.error();
    if (parent != nullptr && parent->raised()) return parent->error();
    const TimePoint now = steady_now();
    if (now >= deadline) return false;
    mail_.wait_for(lock, std::min<Duration>(kSlice, deadline - now));
  }
  return true;
}

void Links::join() { tell_all(frame(LinkFrame::Type::join, 0, rank_)); }

void Links::decline(std::string_view why) {
  LinkFrame declined = frame(LinkFrame::Type::join, 0, rank_);
  declined.code = Errc::unsupported;
  declined.text = why;
  tell_all(declined);
}

Result<void> Links::await_all(TimePoint deadline, const ParentEnd* parent, RankSet& missing) {
  std::unique_lock lock(mail_mutex_);
  const auto look = [&] {
    missing.clear();
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
      if (r != rank_ && !peers_[static_cast<std::size_t>(r)].joined) missing.insert(r);
    }
    return missing.empty() || !declined_.empty();
  };
  const auto all = await_mail(lock, deadline, parent, look);
  if (!all) return all.error();
  if (!declined_.empty()) return Error{.code = Errc::unsupported, .what = declined_};
  if (*all) return {};
  return Error{.code = Errc::timeout, .what = "not all ranks of the group have come"};
}

void Links::pass(int peer, Passed kind, int descriptor) {
  LinkFrame passed = frame(LinkFrame::Type::pass, static_cast<std::uint64_t>(kind), rank_);
  if (descriptor < 0) passed.code = kLacking;
  trunk_->tell(member(peer), encode(passed), descriptor);
}

void Links::on_pass(int peer, const LinkFrame& frame, UniqueFd descriptor) {
  {
    const std::lock_guard lock(mail_mutex_);
    passed_[{peer, static_cast<Passed>(frame.seq & 255)}].push_back(std::move(descriptor));
  }
  mail_.notify_all();
  if (static_cast<Passed>(frame.seq & 255) == Passed::messages) tell_of_sockets();
}

Result<UniqueFd> Links::take(int peer, Passed kind, TimePoint deadline, const ParentEnd* parent) {
  std::unique_lock lock(mail_mutex_);
  auto& come = passed_[{peer, kind}];
  const auto there = await_mail(lock, deadline, parent, [&] {
    return !come.empty() || !declined_.empty() || has_left(peer);
  });
  if (!there) return there.error();
  if (!declined_.empty()) return Error{.code = Errc::unsupported, .what = declined_};
  if (come.empty() && has_left(peer)) {
    return Error{.code = Errc::peer_lost, .what = who(peer) + " has left", .rank = peer};
  }
  if (!*there) {
    return Error{.code = Errc::timeout, .what = who(peer) + " does not answer", .rank = peer};
  }
  UniqueFd descriptor = std::move(come.front());
  come.pop_front();
  return descriptor;
}

// The lower rank of a pair makes both ends, when either rank needs them.
void Links::make_socket(int peer) {
  {
    const std::lock_guard lock(mail_mutex_);
    if (rank_ > peer || std::exchange(peers_[static_cast<std::size_t>(peer)].socket_made, true)) {
      return;
    }
  }
  allow_descriptors(2);
  int ends[2] = {-1, -1};
  (void)::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
  const UniqueFd theirs(ends[1]);
  pass(peer, Passed::messages, theirs.get());  // if there is none both ranks see that at once
  failpoint("links.passes_socket");
  {
    const std::lock_guard lock(mail_mutex_);
    passed_[{peer, Passed::messages}].emplace_back(ends[0]);
  }
  tell_of_sockets();
}

void Links::want_socket(int peer) {
  {
    const std::lock_guard lock(mail_mutex_);
    Watched& to = peers_[static_cast<std::size_t>(peer)];
    to.socket_awaited = true;
    if (std::exchange(to.socket_wanted, true)) return;
  }
  if (has_left(peer)) return tell_of_sockets();
  if (peer > rank_) return make_socket(peer);
  tell(peer, frame(LinkFrame::Type::want, 0, rank_));
}

void Links::await_socket(int peer) {
  {
    const std::lock_guard lock(mail_mutex_);
    if (std::exchange(peers_[static_cast<std::size_t>(peer)].socket_awaited, true)) return;
  }
  if (has_left(peer)) tell_of_sockets();
}

bool Links::ask(int peer, PairSockets::Use use) {
  if (!trunk_->has_link(member(peer))) return false;
  tell(peer, frame(LinkFrame::Type::want, static_cast<std::uint64_t>(use), rank_));
  return true;
}

void Links::on_socket(std::function<void()> ring) {
  const std::lock_guard lock(mail_mutex_);
  ring_ = std::move(ring);
}

void Links::tell_of_sockets() {
  sockets_come_ = true;
  const std::lock_guard lock(mail_mutex_);
  if (ring_) ring_();
}

std::vector<NewSockets> Links::take_sockets() {
  sockets_come_ = false;
  std::vector<NewSockets> taken;
  const std::lock_guard lock(mail_mutex_);
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    Watched& peer = peers_[static_cast<std::size_t>(r)];
    const auto come = passed_.find({r, Passed::messages});
    const bool there = come != passed_.end() && !come->second.empty();
    if (peer.socket_taken || (!there && !(peer.socket_awaited && has_left(r)))) continue;
    peer.socket_taken = true;
    UniqueFd socket;
    if (there) {
      socket = std::move(come->second.front());
      passed_.erase(come);
    } else {
      int ends[2] = {-1, -1};
      (void)::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
      socket.reset(ends[0]);
      UniqueFd(ends[1]).reset();
    }
    taken.push_back({.peer = r, .first = std::move(socket)});
  }
  return taken;
}

}  // namespace dlaunch
