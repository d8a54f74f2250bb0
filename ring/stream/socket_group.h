// SocketGroup: one or several stream sockets to each peer, and how to wait for them. It polls for
// some time (if ranks outnumber cores it offers its core to the others before each look) and then
// sleeps. The plane or messenger that owns the group decides what goes over the sockets. Not
// thread-safe.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/call/abort_flag.h"
#include "ring/call/peer_sockets.h"
#include "ring/call/spread.h"
#include "ring/stream/spin_policy.h"
#include "ring/stream/stream_errors.h"
#include "ring/stream/stream_peer.h"

namespace dlaunch {

struct StreamOptions {
  // Ranks of this host, and the cores that they share. 0: all ranks of the communicator; the cores
  // that this process may run on.
  int local_ranks = 0;
  int usable_cores = 0;
  // A number of cores that is the same on all ranks; 0: use usable_cores.
  int agreed_cores = 0;
  // A call has stood still for 5 s, and unanswered data to this peer may be the reason. Called once
  // for each peer.
  std::function<void(int peer)> sent_in_vain = {};
  // This rank knows that the peer has left after its last call. Null: nothing will raise the flag
  // when a peer is lost.
  std::function<bool(int peer)> has_left = {};
  // Some ranks are on other hosts. The same on all ranks.
  bool leaves_host = false;
  // The most sockets to one peer.
  std::size_t sockets_each = 1;
  // Gives the sockets that the group lacks; null: it has all. Must outlive the use of the group.
  PeerSockets* source = nullptr;
};

class SocketGroup {
 public:
  // sockets[r] leads to rank r; sockets[rank] is empty, and others may be, which come from the
  // source. round keeps out frames of other rounds. Sets the sockets non-blocking and TCP_NODELAY.
  // The flag must outlive the group.
  static Result<std::unique_ptr<SocketGroup>> open(int rank, int ranks, std::uint64_t round,
                                                   std::vector<UniqueFd> sockets, AbortFlag& abort,
                                                   const StreamOptions& options);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // The peer `distance` ranks further in the circle.
  int at_distance(int distance) const { return (rank_ + distance) % ranks_; }
  bool has(int r) const { return peers_[static_cast<std::size_t>(r)] != nullptr; }
  // Bytes of this peer may be there; if the group lacks sockets to it, asks the source for them.
  void reach(int r, bool to_send) {
    if (has(r)) return (*this)[r].mark_readable();
    to_send ? source_->want_socket(r) : source_->await_socket(r);
  }
  // Attaches the sockets that have come from the source. Cheap if none has.
  Result<void> attach_new() {
    if (source_ == nullptr || !source_->sockets_come()) return {};
    return attach_all(source_->take_sockets());
  }
  // In a forked child: closes the child's copies.
  void close_in_child() const;
  StreamPeer& operator[](int r) { return *peers_[static_cast<std::size_t>(r)]; }
  AbortFlag& abort() { return abort_; }
  // The connection to this peer has ended in a call that needs it. Waits for the cause; true: the
  // flag has it.
  bool told_of_loss(int peer) const;
  bool leaves_host() const { return leaves_host_; }  // StreamOptions::leaves_host
  // All ranks are on one host, with fewer cores than ranks. All ranks agree.
  bool crowded() const { return !leaves_host_ && agreed_cores_ < ranks_; }

  // The most sockets to one peer, and how many of them to send over from now on.
  std::size_t sockets_each() const { return sockets_each_; }
  void use(std::size_t sockets);

  // A call begins: it has not waited yet.
  void begin();
  // Something has moved since the last wait.
  void moved() {
    if (leaves_host_ && idle_since_ != TimePoint{}) spin_.waited(steady_now() - idle_since_);
    idle_since_ = {};
  }

  // Reads from the peer. admit() -> Result<bool> says whether it takes the frame of the present
  // header now, and then sets its place; received() -> Result<bool> is called when its payload has
  // come, and says whether to read on. `moved` becomes true if anything came.
  template <class Admit, class Received>
  Result<void> read(int peer, bool& moved, Admit admit, Received received) {
    StreamPeer& from = (*this)[peer];
    while (true) {
      if (from.has_header()) {
        const Result<bool> admitted = admit();
        if (!admitted) return admitted.error();
        if (!*admitted) return {};
      }
      const auto got = from.receive();
      if (!got) return bad_frame(peer, got.error().what);
      if (*got == StreamPeer::Got::nothing) return {};
      moved = true;
      if (*got != StreamPeer::Got::payload) continue;
      const Result<bool> more = received();
      if (!more) return more.error();
      if (!*more) return {};
    }
  }

  struct Interest {
    bool reads = false;   // only bytes from this peer allow progress
    bool writes = false;  // there is something to send to it
  };
  enum class Waited { ready, deadline };
  // One wait, short or long; it may end without any progress. interest(peer) -> Interest. `extra`:
  // a descriptor that ends the wait when it is readable, or -1.
  template <class InterestOf>
  Result<Waited> wait(TimePoint deadline, int extra, InterestOf interest) {
    const TimePoint now = steady_now();
    if (may_poll_on(now)) {
      for (int d = 1; d < ranks_; ++d) {
        const int r = at_distance(d);
        if (has(r) && interest(r).reads) (*this)[r].mark_readable();
      }
      return Waited::ready;
    }
    if (now >= deadline) return Waited::deadline;
    poll_.clear();
    polled_.clear();
    for (int d = 1; d < ranks_; ++d) {
      if (has(at_distance(d))) watch(at_distance(d), interest(at_distance(d)));
    }
    return sleep(now, deadline, extra);
  }
  // Since begin(), however briefly: a missing rank may have come just now.
  bool has_waited() const { return waited_; }

 private:
  SocketGroup(int rank, int ranks, std::uint64_t round, AbortFlag& abort, bool own_core,
              int agreed_cores, const StreamOptions& options)
      : rank_(rank),
        ranks_(ranks),
        abort_(abort),
        round_(round),
        own_core_(own_core),
        agreed_cores_(agreed_cores),
        leaves_host_(options.leaves_host),
        sockets_each_(options.sockets_each),
        source_(options.source),
        peers_(static_cast<std::size_t>(ranks)),
        sent_in_vain_(options.sent_in_vain),
        has_left_(options.has_left) {}
  bool may_poll_on(TimePoint now);
  bool leave_shared_core(TimePoint now);
  Result<void> prepare(int peer, int fd) const;
  Result<void> attach(NewSockets sockets);
  Result<void> attach_all(std::vector<NewSockets> come);
  void watch(int peer, Interest interest);
  TimePoint look_at() const;
  void look_for_losses(TimePoint now);
  Result<Waited> sleep(TimePoint now, TimePoint deadline, int extra);

  // As in ring/shm/shm_wait.h: a sleep costs both sides some 50 us, and makes others sleep, too.
  static constexpr Duration kSpin = std::chrono::microseconds(300);
  static constexpr int kTurnsPerOffer = 8;  // of the core
  // Between looks at the cores of the others: with many peers a look costs as much as a message.
  static constexpr Duration kCoresLook = std::chrono::microseconds(100);

  const int rank_, ranks_;
  AbortFlag& abort_;
  const std::uint64_t round_;
  const bool own_core_;
  const int agreed_cores_;
  const bool leaves_host_;
  const std::size_t sockets_each_;
  PeerSockets* const source_;
  std::size_t used_ = 1;                            // of the sockets to each peer
  std::vector<std::unique_ptr<StreamPeer>> peers_;  // null: this rank, or no socket yet
  std::shared_ptr<UniqueFd> wake_;  // readable when the flag or a waker ends a sleep
  struct Polled {
    int peer = -1;
    std::size_t socket = 0;
  };
  std::vector<pollfd> poll_;    // for one sleep; after the peers' entries wake_ and `extra`
  std::vector<Polled> polled_;  // the peers of poll_
  std::function<void(int peer)> sent_in_vain_;
  std::function<bool(int peer)> has_left_;
  std::set<int> in_vain_;   // the peers already reported
  TimePoint idle_since_{};  // zero while the call moves
  bool looked_ = false;     // looked for losses since then
  SpinPolicy spin_;         // between hosts
  int turns_ = 0;           // of polling since then
  Spread spread_{rank_};
  TimePoint looked_at_cores_{};
  bool waited_ = false;  // in this call
};

}  // namespace dlaunch
