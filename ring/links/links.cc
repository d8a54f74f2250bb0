#include "ring/links/links.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <exception>
#include <limits>

#include "base/failpoint.h"
#include "base/quiet_thread.h"
#include "base/short_turns.h"
#include "base/socket.h"
#include "rendezvous/tls_tunnel.h"

namespace dlaunch {
namespace {

constexpr std::uint64_t kStays = std::numeric_limits<std::uint64_t>::max();
constexpr int kResetPatienceMs = 20;
// A collective that two looks find under way is told: half a second to one after it began.
constexpr int kLookMs = 500;
constexpr Duration kTunnelPatience = std::chrono::milliseconds(20);
constexpr std::uint32_t kStop = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kDeaths = kStop - 1;

std::string frame_of(LinkFrame::Type type, std::uint64_t seq, int rank) {
  return encode({.type = type, .rank = rank, .seq = seq, .text = ""});
}

}  // namespace

Links::Links(int rank, std::vector<Peer> peers, AbortFlag& abort, Naming naming)
    : rank_(rank), abort_(abort), naming_(std::move(naming)) {
  left_after_ = std::make_unique<std::atomic<std::uint64_t>[]>(peers.size());
  for (auto& peer : peers) {
    left_after_[peers_.size()] = kStays;
    peers_.push_back({std::move(peer.who), std::move(peer.link), {}, false, {}, false});
  }
}

Result<std::unique_ptr<Links>> Links::start(int rank, std::vector<Peer> peers, AbortFlag& abort,
                                            Duration silence, Naming naming) {
  std::unique_ptr<Links> links(new Links(rank, std::move(peers), abort, std::move(naming)));
  links->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  links->stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  links->deaths_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!links->epoll_ || !links->stop_ || !links->deaths_) {
    return errno_error("control thread: epoll", errno);
  }
  auto add = [&](int fd, std::uint32_t tag) {
    epoll_event event{.events = EPOLLIN, .data = {.u32 = tag}};
    return ::epoll_ctl(links->epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  bool added = add(links->stop_.get(), kStop) && add(links->deaths_.get(), kDeaths);
  for (std::size_t r = 0; r < links->peers_.size(); ++r) {
    const auto& link = links->peers_[r].link;
    if (link && silence > Duration::zero()) end_when_silent(link.get(), silence);
    links->peers_[r].carried = link && Carrier(link.get()).fd() != link.get();
    if (link) added = added && add(link.get(), static_cast<std::uint32_t>(r));
  }
  if (!added) return errno_error("control thread: epoll_ctl", errno);
  auto thread = start_quiet_thread([self = links.get()] { self->watch(); });
  if (!thread) return thread.error();
  links->thread_ = std::move(*thread);
  return links;
}

Links::~Links() {
  if (!thread_.joinable()) return;
  say_goodbye();
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void Links::watch() try {
  ask_for_short_turns();
  epoll_event events[16];
  while (true) {
    const int patience_ms = reset_peer_ >= 0 ? kResetPatienceMs : kLookMs;
    const int n = ::epoll_wait(epoll_.get(), events, 16, patience_ms);
    if (n == 0 && reset_peer_ >= 0) lose(std::exchange(reset_peer_, -1));
    for (int i = 0; i < n; ++i) {
      const std::uint32_t tag = events[i].data.u32;
      if (tag == kStop) return;
      if (tag == kDeaths) {
        on_deaths();
      } else {
        on_readable(static_cast<int>(tag));
      }
    }
    look_at_own_call();
  }
} catch (const std::exception&) {
  // No memory, not even for a sentence: without its watch the communicator must not go on.
  abort_.raise({.code = Errc::io, .what = "out of memory"});
}

// False: there is nothing to be read, now or ever.
bool Links::on_readable(int peer) {
  auto& from = peers_[static_cast<std::size_t>(peer)];
  char buffer[4096];
  const ssize_t n = ::recv(from.link.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) {
    if (n == 0) on_end(peer);
    if (n < 0 && errno != EAGAIN) on_broken(peer, errno);
    return false;
  }
  from.input.append(buffer, static_cast<std::size_t>(n));
  std::string_view rest = from.input;
  while (true) {
    const auto frame = take_link_frame(rest, static_cast<int>(peers_.size()));
    if (!frame) {
      rest = {};
      abort({.code = Errc::protocol,
             .what = from.who + " sent bytes on its control link that make no sense",
             .rank = peer});
      break;
    }
    if (!frame->has_value()) break;
    on_frame(peer, **frame);
  }
  from.input.erase(0, from.input.size() - rest.size());
  return true;
}

void Links::on_frame(int peer, const LinkFrame& frame) {
  failpoint("links.frame");
  switch (frame.type) {
    case LinkFrame::Type::abort:
      return on_abort(peer, frame);
    case LinkFrame::Type::goodbye:
      left_after_[static_cast<std::size_t>(peer)] = frame.seq;
      any_left_ = true;
      return abort_if_needed(peer);
    case LinkFrame::Type::where: {
      const std::lock_guard lock(send_mutex_);
      const std::uint64_t completed = completed_, entered = entered_;
      const int inside = entered > completed ? rank_ : -1;
      return tell(peer, frame_of(LinkFrame::Type::here, entered, inside));
    }
    case LinkFrame::Type::here: {
      {
        const std::lock_guard lock(roll_mutex_);
        auto& here = peers_[static_cast<std::size_t>(peer)].here;
        here = frame;
        here->text = {};
      }
      answered_.notify_all();
      return;
    }
    case LinkFrame::Type::inside:
      return on_inside(peer, frame);
  }
}

void Links::on_abort(int peer, const LinkFrame& frame) {
  Error error{.code = frame.code, .what = std::string(frame.text), .rank = frame.rank};
  if (error.code == Errc::aborted) {
    error.what = peers_[static_cast<std::size_t>(peer)].who + " aborted: " + error.what;
    error.code = Errc::peer_lost;
    error.rank = peer;
  }
  abort(error);
}

void Links::on_end(int peer) {
  failpoint("links.end_seen");
  if (peers_[static_cast<std::size_t>(peer)].carried) return on_broken(peer, ECONNRESET);
  stop_watching(peer);
  if (!has_left(peer)) lose(peer);
}

// A reset throws away what the peer had said before: it is what a survivor leaves behind that ended
// with our own words unread. The end of the rank it mourned comes by itself, if it has not yet.
void Links::on_broken(int peer, int os_errno) {
  stop_watching(peer);
  const bool silent = os_errno == ETIMEDOUT || os_errno == EHOSTUNREACH || os_errno == ENETUNREACH;
  if (silent && !has_left(peer)) return lose(peer, "its host does not answer any more");
  if (!has_left(peer) && reset_peer_ < 0) reset_peer_ = peer;
}

void Links::died(int peer) {
  {
    const std::lock_guard lock(dead_mutex_);
    peers_[static_cast<std::size_t>(peer)].dead = true;
  }
  ::eventfd_write(deaths_.get(), 1);
}

void Links::on_deaths() {
  eventfd_t count;
  ::eventfd_read(deaths_.get(), &count);
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    {
      const std::lock_guard lock(dead_mutex_);
      if (!std::exchange(peers_[static_cast<std::size_t>(peer)].dead, false)) continue;
    }
    // Its last words, before its end: it may have left, or ended because it mourned another one.
    while (on_readable(peer)) {
    }
    on_end(peer);
  }
}

void Links::stop_watching(int peer) {
  const auto& link = peers_[static_cast<std::size_t>(peer)].link;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.get(), nullptr);
}

// Everybody sees a rank's end by itself; telling the others makes all name the same rank, should
// the news of two deaths come in different orders.
void Links::lose(int peer, std::string_view how) {
  abort({.code = Errc::peer_lost,
         .what = peers_[static_cast<std::size_t>(peer)].who + " was lost: " + std::string(how),
         .rank = peer});
}

bool Links::has_left(int peer) const {
  return left_after_[static_cast<std::size_t>(peer)] != kStays;
}

// A rank that left after its collective s took full part in all up to s. The others are told: this
// rank may end because of it before they come to need the one that left.
void Links::abort_if_needed(int peer) {
  const auto after = left_after_[static_cast<std::size_t>(peer)].load();
  const auto entered = entered_.load();
  if (after == kStays || entered <= after) return;
  abort({.code = Errc::peer_lost,
         .what = peers_[static_cast<std::size_t>(peer)].who + " has left after collective #" +
                 std::to_string(after) + "; #" + std::to_string(entered) + " needs it",
         .rank = peer});
}

void Links::complete(std::uint64_t seq) {
  std::uint64_t before = completed_;
  while (before < seq && !completed_.compare_exchange_weak(before, seq)) continue;
}

// Released one by one: whoever reads what is written here for a later call sees that entered_ has
// come near it.
void Links::enter(std::uint64_t seq, const CallSignature& call) {
  Entered& slot = calls_[seq % std::size(calls_)];
  slot.seq.store(seq, std::memory_order_release);
  slot.count.store(call.count, std::memory_order_release);
  slot.packed.store(call.packed, std::memory_order_release);
  entered_ = seq;
  failpoint("links.entered");
  if (!any_left_) return;
  for (std::size_t r = 0; r < peers_.size(); ++r) abort_if_needed(static_cast<int>(r));
}

// What was called as collective `seq`, if that is one of the last.
std::optional<CallSignature> Links::called(std::uint64_t seq) const {
  const auto remembered = [&] { return seq <= entered_ && entered_ - seq < kRemembered; };
  if (!remembered()) return std::nullopt;
  const Entered& slot = calls_[seq % std::size(calls_)];
  const bool there = slot.seq.load(std::memory_order_acquire) == seq;
  const CallSignature call{.count = slot.count.load(std::memory_order_acquire),
                           .packed = slot.packed.load(std::memory_order_acquire),
                           .seq = static_cast<std::uint32_t>(seq)};
  if (!there || !remembered()) return std::nullopt;
  return call;
}

// The oldest collective that is not done, of which those on streams may be many; 0: none.
std::uint64_t Links::under_way() const {
  const std::uint64_t completed = completed_, entered = entered_;
  return entered > completed ? completed + 1 : 0;
}

void Links::look_at_own_call() {
  const TimePoint now = steady_now();
  if (now - looked_at_ < std::chrono::milliseconds(kLookMs)) return;
  looked_at_ = now;
  const auto before = std::exchange(seen_, under_way());
  if (seen_ == 0 || seen_ != before || seen_ == said_ || abort_.raised()) return;
  tell_own_call(seen_);
}

std::string Links::inside_frame(std::uint64_t seq) const {
  const auto call = called(seq);
  if (!call) return "";
  return encode(
      {.type = LinkFrame::Type::inside, .rank = rank_, .seq = seq, .text = "", .call = *call});
}

// To the ranks at distances of powers of two, either way. That joins all of them with few frames,
// so that calls that differ at all differ between two ranks one of which tells the other.
void Links::tell_own_call(std::uint64_t seq) {
  const std::string frame = inside_frame(seq);
  if (frame.empty()) return;
  said_ = seq;
  const std::lock_guard lock(send_mutex_);
  const auto ranks = static_cast<unsigned>(peers_.size());
  for (unsigned d = 1; d < ranks; ++d) {
    if (!std::has_single_bit(d) && !std::has_single_bit(ranks - d)) continue;
    tell(static_cast<int>((static_cast<unsigned>(rank_) + d) % ranks), frame);
  }
}

void Links::on_inside(int peer, const LinkFrame& frame) {
  // Of two that have told their calls before the other one came there, the one that is ahead may
  // have left behind what differs.
  if (const std::uint64_t own = under_way(); own != 0 && frame.seq > entered_) {
    const std::string told = inside_frame(own);
    const std::lock_guard lock(send_mutex_);
    if (!told.empty()) tell(peer, told);
    return;
  }
  const auto mine = called(frame.seq);
  if (!mine || *mine == frame.call) return;
  Error error = mismatch_error(rank_, *mine, peer, frame.call);
  abort(naming_ ? naming_(std::move(error)) : std::move(error));
}

// Tells before it raises, and passes on what it hears: a rank whose caller has got the error may
// end at once, and then everybody must know already whom it mourned.
void Links::abort(const Error& error) {
  // One's own abort counts before the peers' answer to it can.
  if (error.code == Errc::aborted) abort_.raise(error);
  {
    const std::lock_guard lock(send_mutex_);
    if (!std::exchange(told_, true))
      tell_all(encode({LinkFrame::Type::abort, error.code, error.rank, 0, error.what}));
    if (std::any_of(peers_.begin(), peers_.end(), [](const Watched& p) { return p.carried; })) {
      flush_tunnels(kTunnelPatience);
    }
  }
  failpoint("links.told_all");
  abort_.raise(error);
}

void Links::say_goodbye() {
  const std::lock_guard lock(send_mutex_);
  const std::uint64_t completed = completed_;
  if (abort_.raised() || completed != entered_) return;
  failpoint("links.goodbye");
  tell_all(frame_of(LinkFrame::Type::goodbye, completed, rank_));
}

RollCall Links::call_roll(std::uint64_t seq) {
  {
    // Answers to an earlier one say nothing of now.
    const std::lock_guard lock(roll_mutex_);
    for (Watched& peer : peers_) peer.here.reset();
  }
  {
    const std::lock_guard lock(send_mutex_);
    tell_all(frame_of(LinkFrame::Type::where, seq, rank_));
  }
  RollCall roll;
  const auto look = [&] {
    roll = {};
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
      const Watched& peer = peers_[static_cast<std::size_t>(r)];
      if (r == rank_ || has_left(r)) continue;  // who left has done its part, or enter() had told
      if (!peer.here) {
        roll.silent.insert(r);
      } else if (peer.here->seq < seq) {
        (peer.here->rank < 0 ? roll.outside : roll.behind).insert(r);
      }
    }
    return roll.silent.empty();
  };
  const auto until = steady_now() + std::chrono::milliseconds(kRollCallPatienceMs);
  std::unique_lock lock(roll_mutex_);
  // In slices: nothing wakes this when the flag is raised.
  while (!look() && !abort_.raised() && steady_now() < until) {
    answered_.wait_for(lock, std::chrono::milliseconds(5));
  }
  return roll;
}

void Links::close_in_child() {
  for (auto& peer : peers_) peer.link.reset();
  epoll_.reset();
  stop_.reset();
  deaths_.reset();
}

void Links::tell_all(std::string_view message) {
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) tell(r, message);
}

// Small messages, and few before the peer has to have heard of them: its buffer takes them, or the
// peer is beyond hearing anyway.
void Links::tell(int peer, std::string_view message) {
  const auto& link = peers_[static_cast<std::size_t>(peer)].link;
  if (!link) return;
  failpoint("links.tell");
  (void)::send(link.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace dlaunch
