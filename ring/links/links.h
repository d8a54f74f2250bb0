// Links: the control connections of one communicator and the thread that watches them. It sleeps
// until a peer speaks or its connection ends, but for two looks a second at the own calls, and is
// how a rank learns that another one died: the kernel closes a dead process's sockets, and of one
// on this host ring/links/death_watch.h tells earlier. What is said is in ring/links/link_frame.h.
// A host that goes without a word, as by a power cut, is lost once its kernel has answered nothing
// for `silence`; a process that merely stands still is not. Ranks that are long in a collective
// tell each other what they have called there: where nobody sends anybody any data, no plane can
// see that calls differ.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/call/abort_flag.h"
#include "ring/call/plane.h"
#include "ring/call/roll_call.h"
#include "ring/links/link_frame.h"

namespace dlaunch {

class Links {
 public:
  struct Peer {
    std::string who;
    UniqueFd link;  // empty for the own rank
  };

  // Adds to an error of these ranks what those who read it know them as.
  using Naming = std::function<Error(Error)>;

  // Starts the thread. The flag must outlive this object.
  // silence: from 2 s on; 0: silent hosts are waited for. naming: may be null; on the thread.
  static Result<std::unique_ptr<Links>> start(int rank, std::vector<Peer> peers, AbortFlag& abort,
                                              Duration silence = Duration::zero(),
                                              Naming naming = nullptr);
  ~Links();  // says goodbye, stops the thread, closes the links
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
  // Tells every peer that this rank leaves after the last collective it has completed; says nothing
  // if one is under way, or after an abort. Any thread.
  void say_goodbye();
  // The process of a peer is dead, whether or not the end of its connection is to be seen yet. What
  // it said before counts. Any thread.
  void died(int peer);
  // Asks all peers where they are, on behalf of collective `seq`, which takes too long here.
  RollCall call_roll(std::uint64_t seq);
  // The peer has said goodbye.
  bool has_left(int peer) const;
  // In a forked child, where the thread does not exist: closes the child's copies of the links.
  // The object cannot be used there any more, nor destroyed.
  void close_in_child();

 private:
  struct Watched {
    std::string who;
    UniqueFd link;
    std::string input;
    bool carried = false;           // by a tunnel: a reset looks like an end
    std::optional<LinkFrame> here;  // its answer; under roll_mutex_
    bool dead = false;              // died(), and not seen to; under dead_mutex_
  };

  // A collective that was entered: the thread reads what the caller writes.
  struct Entered {
    std::atomic<std::uint64_t> seq{0}, count{0};
    std::atomic<std::uint32_t> packed{0};
  };
  static constexpr std::uint64_t kRemembered = 64;  // as many may be under way on a stream

  Links(int rank, std::vector<Peer> peers, AbortFlag& abort, Naming naming);
  void watch();
  bool on_readable(int peer);
  void on_deaths();
  void on_frame(int peer, const LinkFrame& frame);
  void on_abort(int peer, const LinkFrame& frame);
  void on_inside(int peer, const LinkFrame& frame);
  void on_end(int peer);
  void on_broken(int peer, int os_errno);
  void stop_watching(int peer);
  void lose(int peer, std::string_view how = "its connection ended");
  void abort_if_needed(int peer);
  std::uint64_t under_way() const;
  std::string inside_frame(std::uint64_t seq) const;
  void look_at_own_call();
  void tell_own_call(std::uint64_t seq);
  std::optional<CallSignature> called(std::uint64_t seq) const;
  void tell_all(std::string_view message);        // under send_mutex_
  void tell(int peer, std::string_view message);  // under send_mutex_

  const int rank_;
  AbortFlag& abort_;
  const Naming naming_;
  std::vector<Watched> peers_;
  // What each peer's GOODBYE said; kStays while it has not come.
  std::unique_ptr<std::atomic<std::uint64_t>[]> left_after_;
  std::atomic<std::uint64_t> entered_{0};
  std::atomic<std::uint64_t> completed_{0};
  Entered calls_[2 * kRemembered];  // by number; the last kRemembered are not overwritten
  std::atomic<bool> any_left_{false};
  TimePoint looked_at_{};              // the own call, last
  std::uint64_t seen_ = 0, said_ = 0;  // the collective under way then; the last one told
  int reset_peer_ = -1;  // whose connection was reset, while better evidence may still come
  std::mutex send_mutex_;
  bool told_ = false;  // of an abort; under the mutex
  std::mutex roll_mutex_;
  std::condition_variable answered_;
  std::mutex dead_mutex_;
  UniqueFd epoll_;
  UniqueFd stop_;
  UniqueFd deaths_;  // becomes readable when there are some
  std::thread thread_;
};

}  // namespace dlaunch
