// Trunk: the control connections of one communicator, and this process's one thread that watches
// them. Where ranks have links with their neighbours only, a pair gets one when it first needs it
// (ring/links/late_source.h); two, if both connect at the same moment. The communicator and the
// groups made from it on one host share the trunk: each is a channel there (ring/links/links.h), so
// a group needs neither connections nor a thread of its own. The trunk lives as long as one of
// them.
//
// The thread sleeps until a peer speaks or its connection ends, except for two looks a second at
// each channel's running collective. The thread finds the death of a rank: the kernel closes a dead
// process's sockets, and on this host ring/links/death_watch.h is faster. A host that vanishes
// silently, as by a power cut, is lost once its kernel has answered nothing for `silence`; a
// process that merely stands still is not.
//
// Thread-safe. Ranks here are those of the communicator that made the trunk.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
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
#include "ring/links/late_source.h"
#include "ring/links/link_frame.h"

namespace dlaunch {

class Trunk {
 public:
  struct Peer {
    std::string who;
    UniqueFd link;  // empty for the own rank, and for one that gets it later
  };

  // The trunk calls these on its thread, one at a time, and never after close().
  class Channel {
   public:
    virtual ~Channel() = default;
    // `descriptor`: of PASS; empty if this process has no room for another.
    virtual void on_frame(int peer, const LinkFrame& frame, UniqueFd descriptor) = 0;
    // The peer sends nothing from now on.
    virtual void on_end(int peer, std::string_view how) = 0;
    virtual void on_nonsense(int peer) = 0;           // its bytes are no frame
    virtual void on_failure(const Error& error) = 0;  // of the trunk itself
    virtual void on_look() = 0;                       // twice a second
  };

  // silence: at least 2 s; 0: waits for silent hosts.
  static Result<std::shared_ptr<Trunk>> make(int rank, std::vector<Peer> peers, Duration silence);
  ~Trunk();  // not on its own thread
  Trunk(const Trunk&) = delete;
  Trunk& operator=(const Trunk&) = delete;

  // Starts the thread. The first channel is open by then, so that it misses nothing.
  Result<void> run();

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(peers_.size()); }
  const std::string& who(int peer) const { return peers_[static_cast<std::size_t>(peer)].who; }

  // From now on the channel gets frames of these peers. Earlier frames, and ends of connections,
  // reach it at once, on the calling thread.
  void open(std::uint64_t id, Channel& channel, const std::vector<int>& members);
  void close(std::uint64_t id);

  // Hands the frame to the kernel, or keeps it until the kernel takes it. `descriptor`: passed
  // along if the link is AF_UNIX; the caller keeps its own. If the frame must wait and there is no
  // room for a copy of the descriptor, the frame says so (kLacking).
  void tell(int peer, std::string_view frame, int descriptor = -1);
  // The same, on the trunk's thread, for a frame that passes through this rank: it goes with others
  // once the thread has read what has come, or with send_passed() on any thread.
  void pass_on(int peer, std::string_view frame);
  void send_passed();
  bool has_link(int peer);
  // Waits, for a moment at most, until tunnels have carried all frames.
  void flush() const;
  // Waits, for a second at most, until the kernel has all frames. Not on the trunk's thread.
  void drain();

  // The process of a peer is dead, even if its connection has not ended yet. Its earlier frames
  // still count.
  void died(int peer);
  // Reports dead peers of this host from the kernel to died().
  void watch(std::unique_ptr<DeathWatch> deaths) { deaths_ = std::move(deaths); }
  // For ranks that have no link yet: how they connect. Call it before run().
  Result<void> connect_later(std::unique_ptr<LateSource> late);
  bool connects_later() const { return late_ != nullptr; }
  // Takes the descriptors that come with MEMORY, on the thread. Call it before run().
  using TakeMemory = std::function<void(int peer, std::uint64_t number, UniqueFd descriptor)>;
  void on_memory(TakeMemory take) { take_memory_ = std::move(take); }

  // In a forked child, where the thread does not exist: closes the child's copies of the links.
  // Neither use nor destroy the object there afterwards.
  void close_in_child();

 private:
  struct Told {
    std::string bytes;
    UniqueFd descriptor;  // a copy
  };
  // What has been read of a connection, up to the first incomplete frame.
  struct Link {
    UniqueFd fd;
    std::string input;
    std::vector<UniqueFd> descriptors;  // of incomplete frames
    bool in_use = false;                // its frames are being taken; only for the thread
  };
  struct Watched {
    std::string who;
    Link first, second;  // this rank sends on the first one; under send_mutex_ until they are there
    bool carried = false;  // by a tunnel, where a reset looks like an end. Only for the thread
    bool dead = false;     // died(), not handled yet; under dead_mutex_
    // One of its links has ended, or its process: the thread sets it under send_mutex_. Each link
    // is watched until it ends itself.
    bool over = false;
    bool passes = false;     // some of `output` is for the end of this turn; under send_mutex_
    bool refused = false;    // it takes no link; under send_mutex_
    std::list<Told> output;  // not yet taken by the kernel; under send_mutex_
    std::string ended;       // the reason; "": not ended. Under channels_mutex_
  };
  struct Open {
    Channel* channel = nullptr;
    std::set<int> members;
  };

  Trunk(int rank, std::vector<Peer> peers, Duration silence);
  void main();
  void on_event(std::uint32_t tag, std::uint32_t events);
  bool on_readable(int peer, Link& link);
  void on_frame(int peer, Link& link, const LinkFrame& frame);
  void read_all(int peer);
  void take_frames(int peer, Link& link);
  void take_late_links();
  void take_late_link(int peer, UniqueFd fd);
  bool refuse(int peer);
  void connect(int peer);
  void connect_waiting();
  bool add_link(int peer, Link& link, UniqueFd fd, std::uint32_t tag);
  bool prepare(int peer, const UniqueFd& fd, std::uint32_t tag);
  bool watch(const UniqueFd& fd, std::uint32_t tag) const;
  void on_nonsense(int peer);
  void on_deaths();
  void on_end(int peer);
  void on_broken(int peer, int os_errno);
  void on_reset(int peer);
  void end(int peer, std::string_view how);
  void lose_reset(TimePoint looked);
  void look();
  bool mark_over(int peer);
  void stop_watching(int link) const;
  static bool send_some(const Watched& to, std::string& bytes, int& descriptor);
  void send_more(int peer);
  void await_writable(int peer, bool wanted);
  Watched& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

  const int rank_;
  const Duration silence_;
  std::vector<Watched> peers_;
  std::unique_ptr<LateSource> late_;
  TakeMemory take_memory_;
  bool warned_ = false;               // that a rank cannot be reached; under send_mutex_
  bool passes_ = false;               // of any peer; likewise
  std::atomic<bool> carried_{false};  // any of the links
  std::mutex channels_mutex_;
  std::map<std::uint64_t, Open> channels_;
  HeldFrames held_;
  // Reset connections and the times, while better evidence may still come.
  std::map<int, TimePoint> reset_peers_;
  TimePoint looked_at_{};
  std::mutex send_mutex_;
  std::mutex dead_mutex_;
  UniqueFd epoll_;
  UniqueFd stop_;
  UniqueFd deaths_event_;  // readable when there are some
  std::thread thread_;
  std::unique_ptr<DeathWatch> deaths_;
};

}  // namespace dlaunch
