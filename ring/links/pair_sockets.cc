#include "ring/links/pair_sockets.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/failpoint.h"
#include "base/log.h"
#include "ring/links/listener.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostMore = 63;

// What an order of a connection is for: a rank and a purpose.
std::uint64_t pack(int peer, Purpose purpose) {
  return static_cast<std::uint64_t>(peer) << 8 | static_cast<std::uint64_t>(purpose);
}
int peer_of(std::uint64_t order) { return static_cast<int>(order >> 8); }
Purpose purpose_of(std::uint64_t order) { return static_cast<Purpose>(order & 255); }

PairSockets::Use use_of(Purpose purpose) {
  const bool messages = purpose == Purpose::ring_messages || purpose == Purpose::ring_want_messages;
  return messages ? PairSockets::Use::messages : PairSockets::Use::data;
}

Purpose first_of(PairSockets::Use use) {
  return use == PairSockets::Use::messages ? Purpose::ring_messages : Purpose::ring_data;
}

Purpose want_of(PairSockets::Use use) {
  return use == PairSockets::Use::messages ? Purpose::ring_want_messages : Purpose::ring_want_data;
}

bool is_want(Purpose purpose) {
  return purpose == Purpose::ring_want_data || purpose == Purpose::ring_want_messages;
}

UniqueFd ended_socket() {
  int ends[2] = {-1, -1};
  (void)::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
  UniqueFd(ends[1]).reset();
  return UniqueFd(ends[0]);
}

// Leaves out connections that the other end has made again, because they failed there. A rank may
// end once it has sent what it had to, so the end of a connection alone is no reason.
void leave_out_failed(std::vector<UniqueFd>& more, std::size_t made) {
  for (auto it = more.begin(); it != more.end() && more.size() > made;) {
    it = has_hung_up(*it) ? more.erase(it) : std::next(it);
  }
}

}  // namespace

PairSockets::PairSockets(std::shared_ptr<Connections> connections, HandshakeIdentity self,
                         std::string instance, int ranks)
    : connections_(std::move(connections)),
      self_(std::move(self)),
      instance_(std::move(instance)),
      rank_(self_.from_rank),
      pairs_(static_cast<std::size_t>(ranks)),
      left_(static_cast<std::size_t>(ranks)),
      link_ordered_(static_cast<std::size_t>(ranks)) {
  for (const Use use : {Use::data, Use::messages}) {
    at(use).owner = this;
    at(use).use = use;
  }
}

std::shared_ptr<PairSockets> PairSockets::open(std::shared_ptr<Connections> connections,
                                               HandshakeIdentity self, std::string instance,
                                               int ranks) {
  std::shared_ptr<PairSockets> made(
      new PairSockets(std::move(connections), std::move(self), std::move(instance), ranks));
  HandshakeIdentity expected = made->self_;
  expected.job_id = link_id_of(expected.job_id, made->instance_);
  expected.from_rank = -1;
  expected.to_rank = made->rank_;
  made->client_ = made->connections_->add(expected, *made);
  return made;
}

PairSockets::~PairSockets() { connections_->remove(client_); }

void PairSockets::take_links(LinkTaker taker) {
  const std::lock_guard lock(links_mutex_);
  links_ = std::move(taker);
  for (auto& [rank, held] : std::exchange(held_links_, {})) offer_link(std::move(held));
}

// Under links_mutex_.
void PairSockets::offer_link(NewLink link) {
  const int rank = link.from.from_rank;
  if (!links_.take || !links_.take(link)) held_links_[rank] = std::move(link);
}

void PairSockets::order_link(int peer) {
  const std::lock_guard lock(mutex_);
  const auto at = static_cast<std::size_t>(peer);
  if (link_ordered_[at]) return;
  link_ordered_[at] = true;
  connect(peer, Purpose::ring_link);
}

void PairSockets::start(Ways ways) {
  const std::lock_guard lock(mutex_);
  ways_ = std::move(ways);
  for (const auto& [peer, use] : std::exchange(asked_early_, {})) order(peer, use);
}

// -- What this rank and others want

void PairSockets::want(int peer, Use use) {
  bool gone = false;
  {
    const std::lock_guard lock(mutex_);
    pair(peer, use).awaited = true;
    if (std::exchange(pair(peer, use).wanted, true)) return;
    if (peer < rank_) return order(peer, use);
    gone = has_left(peer);
  }
  if (gone) return at(use).rings();
  if (ways_.ask(peer, use)) return;
  const std::lock_guard lock(mutex_);
  connect(peer, want_of(use));
}

void PairSockets::await(int peer, Use use) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(pair(peer, use).awaited, true) || !has_left(peer)) return;
  }
  at(use).rings();
}

void PairSockets::asked(int peer, Use use) {
  const std::lock_guard lock(mutex_);
  if (peer >= rank_) return;
  if (ways_.targets.empty()) {
    asked_early_.emplace_back(peer, use);
  } else {
    order(peer, use);
  }
}

// Under the mutex. The first socket comes last: once it is there, so are the others.
void PairSockets::order(int peer, Use use) {
  Pair& made = pair(peer, use);
  if (std::exchange(made.ordered, true)) return;
  made.to_come = use == Use::data ? ways_.more[static_cast<std::size_t>(peer)] : 0;
  for (std::size_t i = 0; i < made.to_come; ++i) connect(peer, Purpose::ring_more_data);
  if (made.to_come == 0) connect(peer, first_of(use));
}

void PairSockets::connect(int peer, Purpose purpose) {
  const Connections::Target& to = ways_.targets[static_cast<std::size_t>(peer)];
  HandshakeIdentity self = self_;
  self.job_id = link_id_of(self.job_id, to.instance);
  self.to_rank = peer;
  self.purpose = purpose;
  if (purpose == Purpose::ring_data) {
    self.more = static_cast<std::uint8_t>(ways_.more[static_cast<std::size_t>(peer)]);
  }
  failpoint("pair_sockets.connects");
  connections_->connect(client_, pack(peer, purpose), to, std::move(self));
}

std::vector<NewSockets> PairSockets::take(Use use) {
  at(use).come = false;
  std::vector<NewSockets> taken;
  const std::lock_guard lock(mutex_);
  for (int peer = 0; peer < static_cast<int>(pairs_.size()); ++peer) {
    Pair& one = pair(peer, use);
    if (one.taken || !(one.there || one.awaited)) continue;
    // An attempt to connect decides itself that the other rank has gone.
    const bool gone = one.ordered ? one.in_vain : has_left(peer);
    if (!one.there && !gone) continue;
    one.taken = true;
    taken.push_back({peer, one.there ? std::move(one.first) : ended_socket(), std::move(one.more)});
  }
  return taken;
}

// -- On the thread of the connections

void PairSockets::on_connection(UniqueFd fd, const HandshakeIdentity& from, bool is_unix) {
  if (from.purpose == Purpose::ring_link) {
    const int rank = from.from_rank;
    if (rank < 0 || rank >= static_cast<int>(pairs_.size()) || rank == rank_) return;
    const std::lock_guard lock(links_mutex_);
    return offer_link({std::move(fd), from, is_unix});
  }
  const int peer = from.from_rank;
  if (is_want(from.purpose)) {
    if (peer >= 0 && peer < rank_) asked(peer, use_of(from.purpose));
    return;
  }
  if (peer <= rank_ || peer >= static_cast<int>(pairs_.size())) return;
  const Use use = use_of(from.purpose);
  {
    const std::lock_guard lock(mutex_);
    Pair& one = pair(peer, use);
    // A second connection counts only if the first one has ended before it was of use.
    if (one.taken || (one.there && !has_hung_up(one.first))) return;
    if (from.purpose == Purpose::ring_more_data) {
      if (one.more.size() < kMostMore) one.more.push_back(std::move(fd));
      return;
    }
    leave_out_failed(one.more, from.more);
    one.first = std::move(fd);
    one.there = true;
  }
  failpoint("pair_sockets.accepted");
  at(use).rings();
}

void PairSockets::on_made(std::uint64_t order, Result<UniqueFd> fd) {
  const int peer = peer_of(order);
  const Purpose purpose = purpose_of(order);
  if (purpose == Purpose::ring_link) return on_link_made(peer, std::move(fd));
  const Use use = use_of(purpose);
  if (fd && is_want(purpose)) return;
  {
    const std::lock_guard lock(mutex_);
    Pair& one = pair(peer, use);
    if (!fd) {
      (has_left(peer) ? one.in_vain : one.there) = true;
    } else if (purpose == Purpose::ring_more_data) {
      one.more.push_back(std::move(*fd));
      if (--one.to_come == 0) connect(peer, first_of(use));
      return;
    } else {
      one.first = std::move(*fd);
      one.there = true;
    }
  }
  at(use).rings();
}

// Without room for a descriptor it may be ordered again.
void PairSockets::on_link_made(int peer, Result<UniqueFd> fd) {
  if (!fd) {
    const std::lock_guard lock(mutex_);
    link_ordered_[static_cast<std::size_t>(peer)] = false;
    if (!has_left(peer)) {
      if (!std::exchange(warned_, true)) {
        log_warn("no connection with {} yet: {}; is 'ulimit -n' too low?",
                 ways_.targets[static_cast<std::size_t>(peer)].who, fd.error().what);
      }
      return;
    }
  }
  const std::lock_guard lock(links_mutex_);
  if (links_.made) links_.made(peer, fd ? std::move(*fd) : UniqueFd());
}

// A rank listens as long as it lives and has not left.
bool PairSockets::tries_on(std::uint64_t order, const Error& error) {
  const int peer = peer_of(order);
  if (error.os_errno == ECONNREFUSED) {
    const std::lock_guard lock(links_mutex_);
    if (links_.made) links_.made(peer, UniqueFd());
  }
  const std::lock_guard lock(mutex_);
  return !has_left(peer);
}

// It has left.
void PairSockets::on_posted(std::uint64_t peer) {
  {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(peer)] = true;
  }
  for (OfUse& use : uses_) use.rings();
}

// Ranks that wait for others to connect wait in vain.
void PairSockets::on_failure(const Error& error) {
  {
    const std::lock_guard lock(links_mutex_);
    if (links_.failed) links_.failed(error);
  }
  {
    const std::lock_guard lock(mutex_);
    for (int peer = rank_ + 1; peer < static_cast<int>(pairs_.size()); ++peer) {
      for (Pair& one : pairs_[static_cast<std::size_t>(peer)]) one.there |= one.wanted;
    }
  }
  for (OfUse& use : uses_) use.rings();
}

// -- Its two uses

void PairSockets::OfUse::on_socket(std::function<void()> ring) {
  const std::lock_guard lock(mutex_);
  ring_ = std::move(ring);
}

void PairSockets::OfUse::rings() {
  come = true;
  const std::lock_guard lock(mutex_);
  if (ring_) ring_();
}

// The parent's thread may have been changing them.
void PairSockets::close_in_child() {
  connections_->close_in_child();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (auto& both : pairs_) {
    for (Pair& one : both) {
      one.first.reset();
      one.more.clear();
    }
  }
}

}  // namespace dlaunch
