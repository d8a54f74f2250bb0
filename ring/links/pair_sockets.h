// PairSockets: the sockets of one communicator for data and for messages to ranks with which it
// shares no memory. A pair gets them when one of its two ranks first sends to the other: the higher
// rank connects to the lower one, which asks for that by a WANT on their control link
// (ring/links/link_frame.h), or by a short connection if they have no link. The thread of the
// process's connections does the work, so a rank gets its sockets also if the other one computes
// meanwhile. Between hosts there are several sockets for data (ring/stream/socket_bundle.h).
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rendezvous/handshake.h"
#include "ring/call/peer_sockets.h"
#include "ring/links/connections.h"

namespace dlaunch {

class PairSockets final : private Connections::Client {
 public:
  enum class Use : std::uint8_t { data = 0, messages = 1 };

  // Accepts connections for this rank from now on. self.from_rank is the rank, self.job_id the
  // JobView::link_id(); instance as for link_id_of().
  static std::shared_ptr<PairSockets> open(std::shared_ptr<Connections> connections,
                                           HandshakeIdentity self, std::string instance, int ranks);
  ~PairSockets() override;

  // A proven connection for a control link.
  struct NewLink {
    UniqueFd fd;
    HandshakeIdentity from;
    bool is_unix = false;
  };
  // Takes those that come, on the thread of the connections, and those that were held before. Those
  // that nobody takes are held for the next taker, one of each rank.
  struct LinkTaker {
    std::function<bool(NewLink& link)> take{};  // false: not now
    std::function<void(const Error&)> failed{};
    // The end of an order_link(). Empty: the rank has left, or listens no longer.
    std::function<void(int peer, UniqueFd fd)> made{};
  };
  void take_links(LinkTaker taker);
  // Begins to make a control link to any rank, after start(). Idempotent.
  void order_link(int peer);

  // Before the communicator's first call.
  struct Ways {
    std::vector<Connections::Target> targets;  // where the ranks listen
    // The sockets for data to each rank beside the first one.
    std::vector<std::size_t> more;
    // Sends a WANT to a higher rank. False: there is no link with it.
    std::function<bool(int peer, Use use)> ask;
  };
  void start(Ways ways);

  PeerSockets& of(Use use) { return at(use); }
  // How others reach this rank.
  Connections::Target target() const {
    return {self_.who, instance_, connections_->unix_name(), connections_->tcp_endpoint()};
  }
  // A WANT has come.
  void asked(int peer, Use use);
  // The peer has said goodbye. Connections that it has made before still count.
  void left(int peer) { connections_->post(client_, static_cast<std::uint64_t>(peer)); }
  // The process ends: no socket comes any longer, to any communicator.
  void on_exit() { connections_->stop(); }
  // In a forked child: closes the child's copies.
  void close_in_child();

 private:
  class OfUse final : public PeerSockets {
   public:
    void want_socket(int peer) override { owner->want(peer, use); }
    void await_socket(int peer) override { owner->await(peer, use); }
    void on_socket(std::function<void()> ring) override;
    bool sockets_come() const override { return come.load(std::memory_order_relaxed); }
    std::vector<NewSockets> take_sockets() override { return owner->take(use); }
    void rings();

    PairSockets* owner = nullptr;
    Use use = Use::data;
    std::atomic<bool> come{false};

   private:
    std::mutex mutex_;
    std::function<void()> ring_;
  };
  // One pair's, for one use.
  struct Pair {
    bool wanted = false, awaited = false, taken = false;
    bool ordered = false;     // by this rank, which connects
    bool there = false;       // `first` has come, or there is no room for it
    bool in_vain = false;     // the peer has gone
    std::size_t to_come = 0;  // further sockets, before the first one is ordered
    UniqueFd first{};
    std::vector<UniqueFd> more{};
  };
  PairSockets(std::shared_ptr<Connections> connections, HandshakeIdentity self,
              std::string instance, int ranks);
  void want(int peer, Use use);
  void await(int peer, Use use);
  std::vector<NewSockets> take(Use use);
  void order(int peer, Use use);
  void connect(int peer, Purpose purpose);
  void offer_link(NewLink link);
  void on_link_made(int peer, Result<UniqueFd> fd);
  void on_connection(UniqueFd fd, const HandshakeIdentity& from, bool is_unix) override;
  void on_made(std::uint64_t order, Result<UniqueFd> fd) override;
  bool tries_on(std::uint64_t order, const Error& error) override;
  void on_posted(std::uint64_t peer) override;
  void on_failure(const Error& error) override;
  bool has_left(int peer) const { return left_[static_cast<std::size_t>(peer)]; }
  OfUse& at(Use use) { return uses_[static_cast<std::size_t>(use)]; }
  Pair& pair(int peer, Use use) {
    return pairs_[static_cast<std::size_t>(peer)][static_cast<std::size_t>(use)];
  }

  const std::shared_ptr<Connections> connections_;
  const HandshakeIdentity self_;
  const std::string instance_;
  const int rank_;
  std::uint64_t client_ = 0;
  std::array<OfUse, 2> uses_;
  std::mutex links_mutex_;
  LinkTaker links_;
  std::map<int, NewLink> held_links_;             // by rank; under links_mutex_, too
  std::mutex mutex_;                              // of the rest
  Ways ways_;                                     // start() sets it before this rank wants anything
  std::vector<std::pair<int, Use>> asked_early_;  // WANTs before that
  std::vector<std::array<Pair, 2>> pairs_;        // by rank
  std::vector<bool> left_, link_ordered_;         // likewise
  bool warned_ = false;                           // that a link lacks room
};

}  // namespace dlaunch
