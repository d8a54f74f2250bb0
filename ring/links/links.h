// Links: one communicator's channel on the control connections of its process (ring/links/trunk.h).
// Here a rank hears that another one was lost, has left or has aborted this communicator, and here
// the ranks of a group meet. What is said is in ring/links/link_frame.h. Ranks that are long in a
// collective tell each other what they have called there: where nobody sends anybody any data, no
// plane can see that calls differ.
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
#include "ring/call/plane.h"
#include "ring/call/roll_call.h"
#include "ring/links/link_frame.h"
#include "ring/links/trunk.h"

namespace dlaunch {

class Links : private Trunk::Channel {
 public:
  using Peer = Trunk::Peer;

  // Adds to an error of these ranks what those who read it know them as.
  using Naming = std::function<Error(Error)>;

  // Over connections of its own: makes the trunk that these are, and starts its thread. The flag
  // must outlive this object. silence as for Trunk::make(); naming: may be null; on the thread.
  static Result<std::unique_ptr<Links>> start(int rank, std::vector<Peer> peers, AbortFlag& abort,
                                              Duration silence = Duration::zero(),
                                              Naming naming = nullptr,
                                              Trunk::TakeMemory memory = nullptr);
  // A channel more on a trunk, for its ranks `members`, of which rank `rank` of the channel is this
  // one. All members give the same id, which no other communicator on the trunk has ever had.
  static std::unique_ptr<Links> open(std::shared_ptr<Trunk> trunk, std::uint64_t id, int rank,
                                     std::vector<int> members, AbortFlag& abort, Naming naming);
  // Says goodbye, or that this rank is lost in the middle of a collective; closes the channel.
  ~Links() override;
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // Around collective `seq`, by the caller's thread. enter() raises the flag if a peer that the
  // collective needs has left.
  void enter(std::uint64_t seq, const CallSignature& call);
  // Any thread: calls on streams are done when their GPU is.
  void complete(std::uint64_t seq);
  // Tells every peer that the communicator is over because of `error`, noticed here, and raises the
  // flag. Any thread. Peers that hear of Errc::aborted take this rank for lost.
  void abort(const Error& error);
  // Tells every peer that this rank leaves after the last collective it has completed. False: it
  // has said nothing, because one is under way, or after an abort. Any thread.
  bool say_goodbye();
  // Asks all peers where they are, on behalf of collective `seq`, which takes too long here.
  RollCall call_roll(std::uint64_t seq);
  // The peer has said goodbye.
  bool has_left(int peer) const;
  // In a forked child: closes what the child has copies of. The object cannot be used there any
  // more, nor destroyed.
  void close_in_child();

  const std::shared_ptr<Trunk>& trunk() const { return trunk_; }
  // What the trunk calls a rank of this channel.
  int member(int r) const { return peers_[static_cast<std::size_t>(r)].member; }
  std::string who(int r) const { return trunk_->who(member(r)); }

  // The meeting of a group: tells all that this rank has come, and waits until all have said so.
  void join();
  // In place of join(): that the group cannot meet here, and why.
  void decline(std::string_view why);
  // Errc::timeout: `missing` are those that have not come. Another error: the flag's, or that of
  // `parent`, which may be null.
  Result<void> await_all(TimePoint deadline, const ParentEnd* parent, RankSet& missing);
  // Descriptors, among ranks of one host: given, and taken in the order in which they were given.
  // -1: this rank could not have it, and the peer takes an empty one.
  void pass(int peer, Passed kind, int descriptor);
  // An empty one: this process or the peer's has no room for more. Errc::timeout, Errc::unsupported
  // if a rank has declined, or the flag's error.
  Result<UniqueFd> take(int peer, Passed kind, TimePoint deadline,
                        const ParentEnd* parent = nullptr);
  // A socket for messages to each peer, the same for both of a pair; that to a peer that has left
  // has ended. Once.
  Result<std::vector<UniqueFd>> message_sockets(TimePoint deadline);

 private:
  struct Watched {
    int member = -1;
    std::optional<LinkFrame> here;  // its answer; under roll_mutex_
    bool joined = false;            // under mail_mutex_
    bool socket_made = false;       // for messages, by this rank; likewise
  };

  // A collective that was entered: the thread reads what the caller writes.
  struct Entered {
    std::atomic<std::uint64_t> seq{0}, count{0};
    std::atomic<std::uint32_t> packed{0};
  };
  static constexpr std::uint64_t kRemembered = 64;  // as many may be under way on a stream

  Links(std::shared_ptr<Trunk> trunk, std::uint64_t id, int rank, const std::vector<int>& members,
        AbortFlag& abort, Naming naming);
  void on_frame(int member, const LinkFrame& frame, UniqueFd descriptor) override;
  void on_end(int member, std::string_view how) override;
  void on_nonsense(int member) override;
  void on_failure(const Error& error) override { abort(error); }
  void on_look() override;
  void on_pass(int peer, const LinkFrame& frame, UniqueFd descriptor);
  void on_abort(int peer, const LinkFrame& frame);
  void on_inside(int peer, const LinkFrame& frame);
  void make_socket(int peer);
  template <class Ready>
  Result<bool> await_mail(std::unique_lock<std::mutex>& lock, TimePoint deadline,
                          const ParentEnd* parent, Ready ready);
  LinkFrame frame(LinkFrame::Type type, std::uint64_t seq, int rank) const;
  void lose(int peer, std::string_view how);
  void abort_if_needed(int peer);
  std::uint64_t under_way() const;
  std::optional<LinkFrame> inside_frame(std::uint64_t seq) const;
  void tell_own_call(std::uint64_t seq);
  std::optional<CallSignature> called(std::uint64_t seq) const;
  void tell_all(const LinkFrame& frame);
  void tell(int peer, const LinkFrame& frame);

  const std::shared_ptr<Trunk> trunk_;
  const std::uint64_t id_;
  const int rank_;
  AbortFlag& abort_;
  const Naming naming_;
  std::vector<Watched> peers_;   // by rank, the own one among them
  std::vector<int> from_trunk_;  // its ranks' numbers here; -1: not a member
  // What each peer's GOODBYE said; kStays while it has not come.
  std::unique_ptr<std::atomic<std::uint64_t>[]> left_after_;
  std::atomic<std::uint64_t> entered_{0};
  std::atomic<std::uint64_t> completed_{0};
  Entered calls_[2 * kRemembered];  // by number; the last kRemembered are not overwritten
  std::atomic<bool> any_left_{false};
  std::uint64_t seen_ = 0, said_ = 0;  // the collective under way at the last look; the last told
  std::mutex send_mutex_;
  bool told_ = false;  // of an abort; under the mutex
  std::mutex roll_mutex_;
  std::condition_variable answered_;
  std::mutex mail_mutex_;
  std::condition_variable mail_;
  std::map<std::pair<int, Passed>, std::deque<UniqueFd>> passed_;  // and not taken
  std::string declined_;                                           // why; "": no rank has. Likewise
};

}  // namespace dlaunch
