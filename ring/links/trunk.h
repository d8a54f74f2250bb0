// Trunk: the control connections that one communicator made when it met, and the one thread of this
// process that watches them. That communicator and the groups made out of it on one host share the
// trunk: each is a channel there (ring/links/links.h), so that a group needs neither connections
// nor a thread of its own. The trunk lives as long as one of them.
//
// The thread sleeps until a peer speaks or its connection ends, but for two looks a second at what
// each channel has under way. It is how a rank learns that another one died: the kernel closes a
// dead process's sockets, and of one on this host ring/links/death_watch.h tells earlier. A host
// that goes without a word, as by a power cut, is lost once its kernel has answered nothing for
// `silence`; a process that merely stands still is not.
//
// Thread-safe. Ranks here are those of the communicator that made the trunk.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/links/death_watch.h"
#include "ring/links/held_frames.h"
#include "ring/links/link_frame.h"

namespace dlaunch {

class Trunk {
 public:
  struct Peer {
    std::string who;
    UniqueFd link;  // empty for the own rank
  };

  // What the trunk tells a channel, on its thread, one call at a time, and never after close().
  class Channel {
   public:
    virtual ~Channel() = default;
    // `descriptor`: of PASS; empty where this process has no room for one more.
    virtual void on_frame(int peer, const LinkFrame& frame, UniqueFd descriptor) = 0;
    // The peer will say nothing any more.
    virtual void on_end(int peer, std::string_view how) = 0;
    virtual void on_nonsense(int peer) = 0;           // what it says is no frame
    virtual void on_failure(const Error& error) = 0;  // of the trunk itself
    virtual void on_look() = 0;                       // twice a second
  };

  // silence: from 2 s on; 0: silent hosts are waited for.
  static Result<std::shared_ptr<Trunk>> make(int rank, std::vector<Peer> peers, Duration silence);
  ~Trunk();  // not on its own thread
  Trunk(const Trunk&) = delete;
  Trunk& operator=(const Trunk&) = delete;

  // Starts the thread. The first channel is open by then, so that it misses nothing.
  Result<void> run();

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(peers_.size()); }
  const std::string& who(int peer) const { return peers_[static_cast<std::size_t>(peer)].who; }

  // From now on the channel hears of these peers. What came for it earlier, and whose connection
  // has ended already, it hears at once, on the calling thread.
  void open(std::uint64_t id, Channel& channel, const std::vector<int>& members);
  void close(std::uint64_t id);

  // Hands the frame to the kernel, or keeps it until the kernel takes it. `descriptor`: passed
  // along where the link is AF_UNIX; the caller keeps its own. Where a frame must wait and there is
  // no room for a copy, the frame says so (kLacking).
  void tell(int peer, std::string_view frame, int descriptor = -1);
  // Where tunnels carry what was told: until they have done so, or for a moment.
  void flush() const;

  // The process of a peer is dead, whether or not the end of its connection is to be seen yet. What
  // it said before counts.
  void died(int peer);
  // Tells died() what the kernel knows of the peers of this host.
  void watch(std::unique_ptr<DeathWatch> deaths) { deaths_ = std::move(deaths); }
  // Who takes the descriptors that come with MEMORY, on the thread. Before run().
  using TakeMemory = std::function<void(int peer, std::uint64_t number, UniqueFd descriptor)>;
  void on_memory(TakeMemory take) { take_memory_ = std::move(take); }

  // In a forked child, where the thread does not exist: closes the child's copies of the links.
  // The object cannot be used there any more, nor destroyed.
  void close_in_child();

 private:
  struct Told {
    std::string bytes;
    UniqueFd descriptor;  // a copy
  };
  struct Watched {
    std::string who;
    UniqueFd link;
    std::string input;
    std::deque<UniqueFd> descriptors;  // of frames that are not complete
    bool carried = false;              // by a tunnel: a reset looks like an end
    bool dead = false;                 // died(), and not seen to; under dead_mutex_
    std::deque<Told> output;           // that the kernel has not taken; under send_mutex_
    std::string ended;                 // how; "": it is there. Under channels_mutex_
  };
  struct Open {
    Channel* channel = nullptr;
    std::set<int> members;
  };

  Trunk(int rank, std::vector<Peer> peers);
  void main();
  void on_event(std::uint32_t tag, std::uint32_t events);
  bool on_readable(int peer);
  void on_frame(int peer, const LinkFrame& frame);
  void on_nonsense(int peer);
  void on_deaths();
  void on_end(int peer);
  void on_broken(int peer, int os_errno);
  void end(int peer, std::string_view how);
  void lose_reset(TimePoint looked);
  void look();
  void stop_watching(int peer);
  static bool send_some(const Watched& to, std::string& bytes, int& descriptor);
  void send_more(int peer);
  void await_writable(int peer, bool wanted);
  Watched& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

  const int rank_;
  std::vector<Watched> peers_;
  TakeMemory take_memory_;
  bool carried_ = false;  // any of the links
  std::mutex channels_mutex_;
  std::map<std::uint64_t, Open> channels_;
  HeldFrames held_;
  // Connections that were reset, and when, while better evidence may still come.
  std::map<int, TimePoint> reset_peers_;
  TimePoint looked_at_{};
  std::mutex send_mutex_;
  std::mutex dead_mutex_;
  UniqueFd epoll_;
  UniqueFd stop_;
  UniqueFd deaths_event_;  // becomes readable when there are some
  std::thread thread_;
  std::unique_ptr<DeathWatch> deaths_;
};

}  // namespace dlaunch
