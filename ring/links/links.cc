#include "ring/links/links.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/failpoint.h"

namespace dlaunch {
namespace {

// How long a roll call may take: it may come by way of others, and a rank's thread of links may get
// no CPU for a while on a busy host.
constexpr Duration kRollCallTime = std::chrono::seconds(1);
constexpr std::uint64_t kStays = std::numeric_limits<std::uint64_t>::max();
// Among few links: how long a roll call and an answer stand for further ones, and how old an answer
// may be.
constexpr Duration kAskLasts = std::chrono::milliseconds(300);
constexpr Duration kAnswerLasts = std::chrono::seconds(1);
constexpr Duration kAnswerAge = std::chrono::milliseconds(1500);
// How long a goodbye may take that comes by way of others.
constexpr Duration kGoodbyeTime = std::chrono::seconds(1);

}  // namespace

Links::Links(std::shared_ptr<Trunk> trunk, std::uint64_t id, int rank,
             const std::vector<int>& members, AbortFlag& abort, Naming naming,
             std::vector<int> neighbours)
    : trunk_(std::move(trunk)),
      id_(id),
      rank_(rank),
      abort_(abort),
      naming_(std::move(naming)),
      peers_(members.size()),
      from_trunk_(static_cast<std::size_t>(trunk_->ranks()), -1),
      few_(!neighbours.empty()),
      neighbours_(std::move(neighbours)),
      first_neighbours_(neighbours_.size()) {
  left_after_ = std::make_unique<std::atomic<std::uint64_t>[]>(members.size());
  for (std::size_t r = 0; r < members.size(); ++r) {
    left_after_[r] = kStays;
    peers_[r].member = members[r];
    from_trunk_[static_cast<std::size_t>(members[r])] = static_cast<int>(r);
  }
}

Result<std::unique_ptr<Links>> Links::start(int rank, std::vector<Peer> peers, AbortFlag& abort,
                                            Duration silence, Naming naming,
                                            Trunk::TakeMemory memory,
                                            std::shared_ptr<PairSockets> sockets) {
  auto trunk = Trunk::make(rank, std::move(peers), silence);
  if (!trunk) return trunk.error();
  if (memory) (*trunk)->on_memory(std::move(memory));
  return first_channel(*trunk, {}, abort, std::move(naming), std::move(sockets));
}

Result<std::unique_ptr<Links>> Links::start_few(int rank, std::vector<Peer> peers, Few few,
                                                AbortFlag& abort, Duration silence, Naming naming,
                                                Trunk::TakeMemory memory,
                                                std::shared_ptr<PairSockets> sockets) {
  auto trunk = Trunk::make(rank, std::move(peers), silence);
  if (!trunk) return trunk.error();
  auto ready = (*trunk)->connect_later(std::move(few.late));
  if (!ready) return ready.error();
  if (memory) (*trunk)->on_memory(std::move(memory));
  return first_channel(*trunk, few.graph.neighbours(rank), abort, std::move(naming),
                       std::move(sockets));
}

// Its members are all ranks of the trunk.
Result<std::unique_ptr<Links>> Links::first_channel(const std::shared_ptr<Trunk>& trunk,
                                                    std::vector<int> neighbours, AbortFlag& abort,
                                                    Naming naming,
                                                    std::shared_ptr<PairSockets> sockets) {
  std::vector<int> members(static_cast<std::size_t>(trunk->ranks()));
  std::iota(members.begin(), members.end(), 0);
  auto links = open(trunk, kFirstChannel, trunk->rank(), std::move(members), abort,
                    std::move(naming), std::move(neighbours));
  links->sockets_ = std::move(sockets);
  if (auto ok = trunk->run(); !ok) return ok.error();
  return links;
}

std::unique_ptr<Links> Links::open(std::shared_ptr<Trunk> trunk, std::uint64_t id, int rank,
                                   std::vector<int> members, AbortFlag& abort, Naming naming,
                                   std::vector<int> neighbours) {
  std::unique_ptr<Links> links(new Links(std::move(trunk), id, rank, members, abort,
                                         std::move(naming), std::move(neighbours)));
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

void Links::on_nonsense(int member) { nonsense_of(from_trunk_[static_cast<std::size_t>(member)]); }

void Links::nonsense_of(int peer) {
  abort({.code = Errc::protocol,
         .what = who(peer) + " sent bytes on its control link that make no sense",
         .rank = peer});
}

void Links::on_frame(int member, const LinkFrame& frame, UniqueFd descriptor) {
  int peer = from_trunk_[static_cast<std::size_t>(member)];
  const int ranks = static_cast<int>(peers_.size());
  if (frame.rank >= ranks || frame.origin >= ranks) return on_nonsense(member);
  if (frame.number > 0) {
    if (passed_on(peer, frame)) return;
    peer = frame.origin;
  }
  switch (frame.type) {
    case LinkFrame::Type::abort:
      return on_abort(peer, frame);
    case LinkFrame::Type::goodbye:
      left_after_[static_cast<std::size_t>(peer)] = frame.seq;
      any_left_ = true;
      mail_.notify_all();
      tell_of_sockets();
      if (sockets_) sockets_->left(peer);
      return abort_if_needed(peer);
    case LinkFrame::Type::where:
      return answer_roll_call(peer);
    case LinkFrame::Type::here: {
      {
        const std::lock_guard lock(roll_mutex_);
        Watched& from = peers_[static_cast<std::size_t>(peer)];
        from.here = frame;
        from.here->text = {};
        from.here_at = steady_now();
      }
      answer_came_.notify_all();
      return;
    }
    case LinkFrame::Type::inside:
      return on_inside(peer, frame);
    case LinkFrame::Type::join: {
      if (few_) return add_neighbour(peer);
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
      if (sockets_) return sockets_->asked(peer, static_cast<PairSockets::Use>(frame.seq & 1));
      return make_socket(peer);
    case LinkFrame::Type::memory:
      return;  // belongs to the trunk
    case LinkFrame::Type::arrived:
      return on_arrived(peer, frame);
    case LinkFrame::Type::decided:
      return on_decided(peer, frame);
  }
}

// Passes a frame for all on to the neighbours. True: this rank has had it before. The first copies
// of a rank's frames come in its order, because each link keeps theirs.
bool Links::passed_on(int peer, const LinkFrame& frame) {
  Watched& origin = peers_[static_cast<std::size_t>(frame.origin)];
  if (frame.origin == rank_ || frame.number <= origin.last_heard) return true;
  origin.last_heard = frame.number;
  if (is_repeated(frame)) return false;
  const std::string bytes = encode(frame);
  for (const int r : neighbours_) {
    if (r != peer) trunk_->pass_on(member(r), bytes);
  }
  return false;
}

// It says no more to the others than one before: all have a reason for the end, or all answer
// everybody who asks at this moment.
bool Links::is_repeated(const LinkFrame& frame) {
  if (frame.type == LinkFrame::Type::abort) {
    const std::lock_guard lock(send_mutex_);
    return told_.has_value();
  }
  if (frame.type != LinkFrame::Type::where) return false;
  const TimePoint now = steady_now();
  if (asked_.number > 0 && asked_.seq == frame.seq && now - asked_at_ < kAskLasts) return true;
  asked_ = frame;
  asked_.text = {};
  asked_at_ = now;
  return false;
}

// Among few links an answer goes to all, and answers the other roll calls of this moment, too.
void Links::answer_roll_call(int peer) {
  const std::uint64_t completed = completed_, entered = entered_;
  const int inside = entered > completed ? rank_ : -1;
  const LinkFrame here = frame(LinkFrame::Type::here, entered, inside);
  if (!few_) return tell(peer, here);
  const TimePoint now = steady_now();
  const bool same = answered_.seq == here.seq && answered_.rank == here.rank;
  if (same && answered_.type == LinkFrame::Type::here && now - answered_at_ < kAnswerLasts) return;
  answered_ = here;
  answered_at_ = now;
  tell_all(here);
}

void Links::on_abort(int peer, const LinkFrame& frame) {
  Error error{.code = frame.code, .what = std::string(frame.text), .rank = frame.rank};
  if (error.code == Errc::aborted) {
    error.what = who(peer) + " aborted: " + error.what;
    error.code = Errc::peer_lost;
    error.rank = peer;
  }
  if (frame.number > 0) {  // it is on its way to all
    const std::lock_guard lock(send_mutex_);
    if (!told_) told_ = error;
  }
  abort(error);
}

// Among few links only first neighbours judge a rank's end at once. To others its goodbye may come
// later than the end of a link, by way of others.
void Links::on_end(int member, std::string_view how) {
  const int peer = from_trunk_[static_cast<std::size_t>(member)];
  const auto first = neighbours_.begin();
  const auto end = first + static_cast<std::ptrdiff_t>(first_neighbours_);
  if (!few_ || std::find(first, end, peer) != end) {
    if (!has_left(peer)) lose(peer, how);
  } else {
    peers_[static_cast<std::size_t>(peer)].ended_at = steady_now();
  }
}

void Links::judge_ended(TimePoint now) {
  for (std::size_t r = 0; r < peers_.size() && !abort_.raised(); ++r) {
    const auto ended_at = peers_[r].ended_at;
    const int peer = static_cast<int>(r);
    if (!ended_at || now - *ended_at < kGoodbyeTime) continue;
    peers_[r].ended_at.reset();
    if (!has_left(peer)) lose(peer, "its connection ended");
  }
}

// Ranks leave, and with them the links between those that stay. Each rank that stays has a link
// with the next one, so that news still reach all, and the end of each is seen.
void Links::close_ring() {
  const int ranks = static_cast<int>(peers_.size());
  for (int step = 1; step < ranks; ++step) {
    const int next = (rank_ + step) % ranks;
    if (has_left(next)) continue;
    if (std::find(neighbours_.begin(), neighbours_.end(), next) != neighbours_.end()) return;
    add_neighbour(next);
    return tell(next, frame(LinkFrame::Type::join, 0, rank_));
  }
}

void Links::add_neighbour(int peer) {
  const std::lock_guard lock(flood_mutex_);
  if (std::find(neighbours_.begin(), neighbours_.end(), peer) == neighbours_.end()) {
    neighbours_.push_back(peer);
  }
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
  if (few_) {
    judge_ended(steady_now());
    if (any_left_ && !abort_.raised()) close_ring();
  }
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
  const LinkGraph graph(static_cast<int>(peers_.size()), false);
  for (const int r : graph.neighbours(rank_)) tell(r, *inside);
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
// error may end at once, and all others must know the lost rank by then. A rank that it has told
// may end before the flag is raised here, so the first reason counts.
void Links::abort(const Error& found) {
  // This rank's own abort counts before the peers can answer it.
  if (found.code == Errc::aborted) abort_.raise(found);
  Error error = found;
  {
    const std::lock_guard lock(send_mutex_);
    if (told_) {
      error = *told_;
    } else {
      told_ = error;
      LinkFrame over = frame(LinkFrame::Type::abort, 0, error.rank);
      over.code = error.code;
      over.text = error.what;
      tell_all(over);
    }
  }
  trunk_->send_passed();  // what this rank has heard from another one, it passes on before it ends
  trunk_->flush();
  failpoint("links.told_all");
  abort_.raise(error);
  mail_.notify_all();
}

bool Links::say_goodbye() {
  {
    const std::lock_guard lock(send_mutex_);
    const std::uint64_t completed = completed_;
    if (abort_.raised() || completed != entered_) return false;
    failpoint("links.goodbye");
    tell_all(frame(LinkFrame::Type::goodbye, completed, rank_));
  }
  if (few_) trunk_->drain();  // many goodbyes of others may be on their way, too
  return true;
}

RollCall Links::call_roll(std::uint64_t seq) {
  {
    // Ignore answers to an earlier roll call.
    const std::lock_guard lock(roll_mutex_);
    const TimePoint old = steady_now() - kAnswerAge;
    for (Watched& peer : peers_) {
      if (!few_ || peer.here_at < old) peer.here.reset();
    }
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
  const auto until = steady_now() + kRollCallTime;
  std::unique_lock lock(roll_mutex_);
  // In slices, because the flag does not wake this wait.
  while (!look() && !abort_.raised() && steady_now() < until) {
    answer_came_.wait_for(lock, std::chrono::milliseconds(5));
  }
  return roll;
}

void Links::close_in_child() {
  passed_.clear();
  trunk_->close_in_child();
}

void Links::tell_all(LinkFrame frame) {
  if (!few_) {
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) tell(r, frame);
    return;
  }
  const std::lock_guard lock(flood_mutex_);
  frame.origin = rank_;
  frame.number = ++last_number_;
  for (const int r : neighbours_) tell(r, frame);
  // Who sees the end of a link with this rank must know before why. Those that would pass it on may
  // be at their own end.
  if (frame.type != LinkFrame::Type::goodbye && frame.type != LinkFrame::Type::abort) return;
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    const bool told = std::find(neighbours_.begin(), neighbours_.end(), r) != neighbours_.end();
    if (!told && r != rank_ && trunk_->has_link(member(r))) tell(r, frame);
  }
}

void Links::tell(int peer, const LinkFrame& frame) {
  if (peer != rank_) trunk_->tell(member(peer), encode(frame));
}

}  // namespace dlaunch
