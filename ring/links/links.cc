#include "ring/links/links.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <numeric>

#include "base/failpoint.h"
#include "base/socket.h"
#include "ring/links/descriptor_limit.h"

namespace dlaunch {
namespace {

constexpr std::uint64_t kStays = std::numeric_limits<std::uint64_t>::max();

}  // namespace

Links::Links(std::shared_ptr<Trunk> trunk, std::uint64_t id, int rank,
             const std::vector<int>& members, AbortFlag& abort, Naming naming)
    : trunk_(std::move(trunk)),
      id_(id),
      rank_(rank),
      abort_(abort),
      naming_(std::move(naming)),
      peers_(members.size()),
      from_trunk_(static_cast<std::size_t>(trunk_->ranks()), -1) {
  left_after_ = std::make_unique<std::atomic<std::uint64_t>[]>(members.size());
  for (std::size_t r = 0; r < members.size(); ++r) {
    left_after_[r] = kStays;
    peers_[r].member = members[r];
    from_trunk_[static_cast<std::size_t>(members[r])] = static_cast<int>(r);
  }
}

Result<std::unique_ptr<Links>> Links::start(int rank, std::vector<Peer> peers, AbortFlag& abort,
                                            Duration silence, Naming naming,
                                            Trunk::TakeMemory memory) {
  auto trunk = Trunk::make(rank, std::move(peers), silence);
  if (!trunk) return trunk.error();
  if (memory) (*trunk)->on_memory(std::move(memory));
  std::vector<int> members(static_cast<std::size_t>((*trunk)->ranks()));
  std::iota(members.begin(), members.end(), 0);
  auto links = open(*trunk, kFirstChannel, rank, std::move(members), abort, std::move(naming));
  if (auto ok = (*trunk)->run(); !ok) return ok.error();
  return links;
}

std::unique_ptr<Links> Links::open(std::shared_ptr<Trunk> trunk, std::uint64_t id, int rank,
                                   std::vector<int> members, AbortFlag& abort, Naming naming) {
  std::unique_ptr<Links> links(
      new Links(std::move(trunk), id, rank, members, abort, std::move(naming)));
  std::erase(members, links->member(rank));
  links->trunk_->open(id, *links, members);
  return links;
}

Links::~Links() {
  // The connections may stay for other channels, so their end would not inform the peers.
  if (!say_goodbye()) {
    if (!abort_.raised()) {
      lose(rank_, "it ended in the middle of collective #" + std::to_string(under_way()));
    } else if (const Error why = abort_.error(); why.rank >= 0) {
      abort(why);  // informs the peers, unless they know already
    } else {
      lose(rank_, why.what);
    }
  }
  trunk_->close(id_);
}

LinkFrame Links::frame(LinkFrame::Type type, std::uint64_t seq, int rank) const {
  return {.type = type, .rank = rank, .seq = seq, .text = "", .channel = id_};
}

void Links::on_nonsense(int member) {
  const int peer = from_trunk_[static_cast<std::size_t>(member)];
  abort({.code = Errc::protocol,
         .what = who(peer) + " sent bytes on its control link that make no sense",
         .rank = peer});
}

void Links::on_frame(int member, const LinkFrame& frame, UniqueFd descriptor) {
  const int peer = from_trunk_[static_cast<std::size_t>(member)];
  if (frame.rank >= static_cast<int>(peers_.size())) return on_nonsense(member);
  switch (frame.type) {
    case LinkFrame::Type::abort:
      return on_abort(peer, frame);
    case LinkFrame::Type::goodbye:
      left_after_[static_cast<std::size_t>(peer)] = frame.seq;
      any_left_ = true;
      mail_.notify_all();
      tell_of_sockets();
      return abort_if_needed(peer);
    case LinkFrame::Type::where: {
      const std::uint64_t completed = completed_, entered = entered_;
      const int inside = entered > completed ? rank_ : -1;
      return tell(peer, this->frame(LinkFrame::Type::here, entered, inside));
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
    case LinkFrame::Type::join: {
      {
        const std::lock_guard lock(mail_mutex_);
        peers_[static_cast<std::size_t>(peer)].joined = true;
        if (frame.code == Errc::unsupported) declined_ = frame.text;
      }
      mail_.notify_all();
      return;
    }
    case LinkFrame::Type::pass:
      return on_pass(peer, frame, std::move(descriptor));
    case LinkFrame::Type::want:
      return make_socket(peer);
    case LinkFrame::Type::memory:
      return;  // belongs to the trunk
  }
}

void Links::on_abort(int peer, const LinkFrame& frame) {
  Error error{.code = frame.code, .what = std::string(frame.text), .rank = frame.rank};
  if (error.code == Errc::aborted) {
    error.what = who(peer) + " aborted: " + error.what;
    error.code = Errc::peer_lost;
    error.rank = peer;
  }
  abort(error);
}

void Links::on_end(int member, std::string_view how) {
  const int peer = from_trunk_[static_cast<std::size_t>(member)];
  if (!has_left(peer)) lose(peer, how);
}

// Every rank sees another one's end itself; this message makes all name the same rank, even if the
// news of two deaths comes in different orders.
void Links::lose(int peer, std::string_view how) {
  abort({.code = Errc::peer_lost,
         .what = who(peer) + " was lost: " + std::string(how),
         .rank = peer});
}

bool Links::has_left(int peer) const {
  return left_after_[static_cast<std::size_t>(peer)] != kStays;
}

// A rank that left after its collective s took full part in all up to s. Inform the others: this
// rank may end because of it before they need the one that left.
void Links::abort_if_needed(int peer) {
  const auto after = left_after_[static_cast<std::size_t>(peer)].load();
  const auto entered = entered_.load();
  if (after == kStays || entered <= after) return;
  abort({.code = Errc::peer_lost,
         .what = who(peer) + " has left after collective #" + std::to_string(after) + "; #" +
                 std::to_string(entered) + " needs it",
         .rank = peer});
}

void Links::complete(std::uint64_t seq) {
  std::uint64_t before = completed_;
  while (before < seq && !completed_.compare_exchange_weak(before, seq)) continue;
}

// Release the fields one by one: a reader that finds the values of a later call here sees that
// entered_ is close to it.
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

// The call that was collective `seq`, if it is one of the last.
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

// The oldest running collective (a stream may have many); 0: none.
std::uint64_t Links::under_way() const {
  const std::uint64_t completed = completed_, entered = entered_;
  return entered > completed ? completed + 1 : 0;
}

// Sends a collective that two looks have found running: half a second to one after it began.
void Links::on_look() {
  const auto before = std::exchange(seen_, under_way());
  if (seen_ == 0 || seen_ != before || seen_ == said_ || abort_.raised()) return;
  tell_own_call(seen_);
}

std::optional<LinkFrame> Links::inside_frame(std::uint64_t seq) const {
  const auto call = called(seq);
  if (!call) return std::nullopt;
  LinkFrame inside = frame(LinkFrame::Type::inside, seq, rank_);
  inside.call = *call;
  return inside;
}

// Sends to the ranks at distances of powers of two, both ways. That connects all of them with few
// frames, so if any calls differ they differ between a rank and one that it informs.
void Links::tell_own_call(std::uint64_t seq) {
  const auto inside = inside_frame(seq);
  if (!inside) return;
  said_ = seq;
  const auto ranks = static_cast<unsigned>(peers_.size());
  for (unsigned d = 1; d < ranks; ++d) {
    if (!std::has_single_bit(d) && !std::has_single_bit(ranks - d)) continue;
    tell(static_cast<int>((static_cast<unsigned>(rank_) + d) % ranks), *inside);
  }
}

void Links::on_inside(int peer, const LinkFrame& frame) {
  // If both have sent their calls before the other one came there, the rank that is ahead may have
  // passed the call that differs.
  if (const std::uint64_t own = under_way(); own != 0 && frame.seq > entered_) {
    if (const auto told = inside_frame(own)) tell(peer, *told);
    return;
  }
  const auto mine = called(frame.seq);
  if (!mine || *mine == frame.call) return;
  Error error = mismatch_error(rank_, *mine, peer, frame.call);
  abort(naming_ ? naming_(std::move(error)) : std::move(error));
}

// Sends before it raises the flag, and passes on what it receives: a rank whose caller has the
// error may end at once, and all others must know the lost rank by then.
void Links::abort(const Error& error) {
  // This rank's own abort counts before the peers can answer it.
  if (error.code == Errc::aborted) abort_.raise(error);
  {
    const std::lock_guard lock(send_mutex_);
    if (!std::exchange(told_, true)) {
      LinkFrame over = frame(LinkFrame::Type::abort, 0, error.rank);
      over.code = error.code;
      over.text = error.what;
      tell_all(over);
    }
  }
  trunk_->flush();
  failpoint("links.told_all");
  abort_.raise(error);
  mail_.notify_all();
}

bool Links::say_goodbye() {
  const std::lock_guard lock(send_mutex_);
  const std::uint64_t completed = completed_;
  if (abort_.raised() || completed != entered_) return false;
  failpoint("links.goodbye");
  tell_all(frame(LinkFrame::Type::goodbye, completed, rank_));
  return true;
}

RollCall Links::call_roll(std::uint64_t seq) {
  {
    // Ignore answers to an earlier roll call.
    const std::lock_guard lock(roll_mutex_);
    for (Watched& peer : peers_) peer.here.reset();
  }
  tell_all(frame(LinkFrame::Type::where, seq, rank_));
  RollCall roll;
  const auto look = [&] {
    roll = {};
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
      const Watched& peer = peers_[static_cast<std::size_t>(r)];
      if (r == rank_ || has_left(r)) continue;  // has done its part, or enter() had found it
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
  // In slices, because the flag does not wake this wait.
  while (!look() && !abort_.raised() && steady_now() < until) {
    answered_.wait_for(lock, std::chrono::milliseconds(5));
  }
  return roll;
}

void Links::close_in_child() {
  passed_.clear();
  trunk_->close_in_child();
}

void Links::tell_all(const LinkFrame& frame) {
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) tell(r, frame);
}

void Links::tell(int peer, const LinkFrame& frame) {
  if (peer != rank_) trunk_->tell(member(peer), encode(frame));
}

// -- The bootstrap of a group, and descriptors

// Waits until ready() is true; false at the deadline. In slices, because the parent's end does not
// wake it.
template <class Ready>
Result<bool> Links::await_mail(std::unique_lock<std::mutex>& lock, TimePoint deadline,
                               const ParentEnd* parent, Ready ready) {
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
    if (std::exchange(peers_[static_cast<std::size_t>(peer)].socket_wanted, true)) return;
  }
  if (has_left(peer)) return tell_of_sockets();
  if (peer > rank_) return make_socket(peer);
  tell(peer, frame(LinkFrame::Type::want, 0, rank_));
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

std::vector<std::pair<int, UniqueFd>> Links::take_sockets() {
  sockets_come_ = false;
  std::vector<std::pair<int, UniqueFd>> taken;
  const std::lock_guard lock(mail_mutex_);
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    Watched& peer = peers_[static_cast<std::size_t>(r)];
    const auto come = passed_.find({r, Passed::messages});
    const bool there = come != passed_.end() && !come->second.empty();
    if (peer.socket_taken || (!there && !(peer.socket_wanted && has_left(r)))) continue;
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
    taken.emplace_back(r, std::move(socket));
  }
  return taken;
}

}  // namespace dlaunch
