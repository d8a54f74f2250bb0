// Links: one communicator's channel on the control connections of its process (ring/links/trunk.h).
// Here a rank learns that another one was lost, has left or has aborted this communicator, and here
// the ranks of a group meet. ring/links/link_frame.h has the messages. Where ranks have links with
// their neighbours only (ring/links/link_graph.h), they pass on what is for all. Ranks that are
// long in a collective send each other what they have called there: without any data between them,
// no plane can see that calls differ.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rank_set.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/call/abort_flag.h"
#include "ring/call/parent_end.h"
#include "ring/call/peer_sockets.h"
#include "ring/call/plane.h"
#include "ring/call/roll_call.h"
#include "ring/call/some_quorum.h"
#include "ring/links/late_source.h"
#include "ring/links/link_frame.h"
#include "ring/links/link_graph.h"
#include "ring/links/pair_sockets.h"
#include "ring/links/trunk.h"

namespace dlaunch {

class Links : private Trunk::Channel, public PeerSockets {
 public:
  using Peer = Trunk::Peer;

  // Adds the ranks' names as users know them to an error.
  using Naming = std::function<Error(Error)>;

  // Over connections of its own: makes their trunk, and starts its thread. The flag must outlive
  // this object. silence as for Trunk::make(); naming: may be null; called on any thread.
  static Result<std::unique_ptr<Links>> start(int rank, std::vector<Peer> peers, AbortFlag& abort,
                                              Duration silence = Duration::zero(),
                                              Naming naming = nullptr,
                                              Trunk::TakeMemory memory = nullptr,
                                              std::shared_ptr<PairSockets> sockets = nullptr);
  // The same for ranks whose links lead to their neighbours only.
  struct Few {
    LinkGraph graph;
    std::unique_ptr<LateSource> late;
  };
  static Result<std::unique_ptr<Links>> start_few(int rank, std::vector<Peer> peers, Few few,
                                                  AbortFlag& abort, Duration silence, Naming naming,
                                                  Trunk::TakeMemory memory,
                                                  std::shared_ptr<PairSockets> sockets = nullptr);
  // Another channel on a trunk, for its ranks `members`; `rank` is this rank's number in the
  // channel. All members give the same id, which no other communicator on the trunk has ever had.
  // neighbours: with whom the rank has a link from the start; empty: each pair has one, or makes it
  // at its first frame.
  static std::unique_ptr<Links> open(std::shared_ptr<Trunk> trunk, std::uint64_t id, int rank,
                                     std::vector<int> members, AbortFlag& abort, Naming naming,
                                     std::vector<int> neighbours = {});
  // Says goodbye, or, in the middle of a collective, that this rank is lost; closes the channel.
  ~Links() override;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Call them around collective `seq`, on the caller's thread. enter() raises the flag if a peer
  // that the collective needs has left.
  void enter(std::uint64_t seq, const CallSignature& call);
  // Any thread, because a call on a stream is done when its GPU is.
  void complete(std::uint64_t seq);
  // Tells every peer that the communicator is over because of `error`, found here, and raises the
  // flag. Any thread. For the peers Errc::aborted is the loss of this rank.
  void abort(const Error& error);
  // Tells every peer that this rank leaves after its last completed collective. False: it has sent
  // nothing, because a collective is running, or after an abort. Any thread.
  bool say_goodbye();
  // Asks all peers where they are, because collective `seq` takes too long here.
  RollCall call_roll(std::uint64_t seq);
  // The peer has said goodbye.
  bool has_left(int peer) const;
  // In a forked child: closes the child's copies. Neither use nor destroy the object there
  // afterwards.
  void close_in_child();

  const std::shared_ptr<Trunk>& trunk() const { return trunk_; }
  // The trunk's number for a rank of this channel.
  int member(int r) const { return peers_[static_cast<std::size_t>(r)].member; }
  std::string who(int r) const { return trunk_->who(member(r)); }

  // all_reduce_some: tells rank 0, which decides, that this rank is in the call, or has waited in
  // it.
  void some_arrived(const SomeArrival& arrival);
  // Waits for the decision on such a call, and takes it; nullopt: the time is up. Once for each
  // call.
  Result<std::optional<SomeGiven>> await_decision(std::uint64_t number, TimePoint until);
  // The last such call that is decided.
  std::uint64_t decided() const { return decided_; }

  // The bootstrap of a group: tells all members that this rank has come. await_all() waits for
  // theirs.
  void join();
  // Instead of join(): tells them that the group cannot meet here, and why.
  void decline(std::string_view why);
  // Waits until all members have come. Errc::timeout: `missing` have not come. Other errors: the
  // flag's, or that of `parent`, which may be null.
  Result<void> await_all(TimePoint deadline, const ParentEnd* parent, RankSet& missing);
  // Passes a descriptor to a peer on this host; the peer takes them in the same order. -1: this
  // rank could not get it, and the peer takes an empty one.
  void pass(int peer, Passed kind, int descriptor);
  // Empty: this process or the peer's has no room for more. Errc::timeout, Errc::unsupported if a
  // rank has declined, Errc::peer_lost if the peer has left, or the flag's error.
  Result<UniqueFd> take(int peer, Passed kind, TimePoint deadline,
                        const ParentEnd* parent = nullptr);
  // Asks a higher rank to connect. False: there is no link with it.
  bool ask(int peer, PairSockets::Use use);
  // For ranks of one host: sockets for messages, connected in pairs, which pass over the links.
  void want_socket(int peer) override;
  void await_socket(int peer) override;
  void on_socket(std::function<void()> ring) override;
  bool sockets_come() const override { return sockets_come_.load(std::memory_order_relaxed); }
  std::vector<NewSockets> take_sockets() override;

 private:
  struct Watched {
    int member = -1;
    // Its answer, and when it came; under roll_mutex_.
    std::optional<LinkFrame> here;
    TimePoint here_at{};
    // Only for the thread: the number of its last frame for all, and when its links ended, if it
    // is not for this rank alone to judge that.
    std::uint32_t last_heard = 0;
    std::optional<TimePoint> ended_at;
    // Under mail_mutex_, the last two about the socket for messages.
    bool joined = false;
    bool socket_made = false;  // by this rank
    bool socket_wanted = false, socket_awaited = false, socket_taken = false;
  };

  // A collective that was entered: the caller writes it, the thread reads it.
  struct Entered {
    std::atomic<std::uint64_t> seq{0}, count{0};
    std::atomic<std::uint32_t> packed{0};
  };
  static constexpr std::uint64_t kRemembered = 64;  // as many may be under way on a stream

  static Result<std::unique_ptr<Links>> first_channel(const std::shared_ptr<Trunk>& trunk,
                                                      std::vector<int> neighbours, AbortFlag& abort,
                                                      Naming naming,
                                                      std::shared_ptr<PairSockets> sockets);
  Links(std::shared_ptr<Trunk> trunk, std::uint64_t id, int rank, const std::vector<int>& members,
        AbortFlag& abort, Naming naming, std::vector<int> neighbours);
  void on_frame(int member, const LinkFrame& frame, UniqueFd descriptor) override;
  void on_end(int member, std::string_view how) override;
  void on_nonsense(int member) override;
  void on_failure(const Error& error) override { abort(error); }
  void on_look() override;
  void on_pass(int peer, const LinkFrame& frame, UniqueFd descriptor);
  void on_abort(int peer, const LinkFrame& frame);
  void on_inside(int peer, const LinkFrame& frame);
  void on_arrived(int peer, const LinkFrame& frame);
  void on_decided(int peer, const LinkFrame& frame);
  void take_arrival(int rank, const SomeArrival& arrival);
  bool keep_decision(SomeDecision decision);
  void nonsense_of(int peer);
  void make_socket(int peer);
  void tell_of_sockets();
  Result<bool> await_mail(std::unique_lock<std::mutex>& lock, TimePoint deadline,
                          const ParentEnd* parent, const std::function<bool()>& ready);
  LinkFrame frame(LinkFrame::Type type, std::uint64_t seq, int rank) const;
  void lose(int peer, std::string_view how);
  void abort_if_needed(int peer);
  std::uint64_t under_way() const;
  std::optional<LinkFrame> inside_frame(std::uint64_t seq) const;
  void tell_own_call(std::uint64_t seq);
  std::optional<CallSignature> called(std::uint64_t seq) const;
  bool passed_on(int peer, const LinkFrame& frame);
  void answer_roll_call(int peer);
  void tell_all(LinkFrame frame);
  bool is_repeated(const LinkFrame& frame);
  void judge_ended(TimePoint now);
  void close_ring();
  void add_neighbour(int peer);
  void tell(int peer, const LinkFrame& frame);

  const std::shared_ptr<Trunk> trunk_;
  const std::uint64_t id_;
  const int rank_;
  AbortFlag& abort_;
  const Naming naming_;
  std::shared_ptr<PairSockets> sockets_;  // null: ranks of one host
  std::vector<Watched> peers_;            // by rank, the own one among them
  std::vector<int> from_trunk_;           // its ranks' numbers here; -1: not a member
  // Among few links: the ranks to which this one passes on, the first of them from the start. The
  // thread changes them, under flood_mutex_.
  const bool few_;
  std::vector<int> neighbours_;
  const std::size_t first_neighbours_;
  std::mutex flood_mutex_;
  std::uint32_t last_number_ = 0;  // of the frames for all; under the mutex
  // The last HERE for all, and the last WHERE that was passed on, and when; only for the thread.
  LinkFrame answered_{}, asked_{};
  TimePoint answered_at_{}, asked_at_{};
  // The `seq` of each peer's GOODBYE; kStays before it.
  std::unique_ptr<std::atomic<std::uint64_t>[]> left_after_;
  std::atomic<std::uint64_t> entered_{0};
  std::atomic<std::uint64_t> completed_{0};
  Entered calls_[2 * kRemembered];  // by number; the last kRemembered are not overwritten
  std::atomic<bool> any_left_{false};
  std::uint64_t seen_ = 0, said_ = 0;  // the running collective at the last look; the last sent
  std::mutex send_mutex_;
  std::optional<Error> told_;  // why an abort was sent; under the mutex
  std::mutex roll_mutex_;
  std::condition_variable answer_came_;
  std::mutex mail_mutex_;
  std::condition_variable mail_;
  std::function<void()> ring_;  // of on_socket(); under the mutex
  std::atomic<bool> sockets_come_{false};
  std::map<std::pair<int, Passed>, std::deque<UniqueFd>> passed_;  // not yet taken
  std::string declined_;                                           // why; "": no rank has. Likewise
  // Held until a decision is on its way to all ranks: they get the decisions in order.
  std::mutex quorum_mutex_;
  std::unique_ptr<SomeQuorum> quorum_;  // on rank 0, from the first arrival; under the mutex
  std::map<std::uint64_t, SomeGiven> decisions_;  // not yet taken; under mail_mutex_
  std::atomic<std::uint64_t> decided_{0};
};

}  // namespace dlaunch
