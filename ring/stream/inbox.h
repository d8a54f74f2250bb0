// Inbox: messages that came before this rank asked for them. It has a bound for each peer: a
// message that does not fit stays in the peer's socket until others have been fetched. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "ring/stream/frame.h"

namespace dlaunch {

class Inbox {
 public:
  static constexpr std::size_t kMaxBytesPerPeer = std::size_t{256} << 20;

  struct Message {
    FrameHeader header;
    std::unique_ptr<std::byte[]> payload;
    bool complete = false;
  };

  explicit Inbox(int ranks, std::size_t max_bytes_per_peer = kMaxBytesPerPeer)
      : peers_(ranks), max_bytes_(max_bytes_per_peer) {}

  // Room for a message after its header; null if it does not fit (or memory is short). At most one
  // message of a peer is incomplete, its last one.
  Message* add(int peer, const FrameHeader& header);
  // The last message of the peer is complete; returns its tag.
  int complete(int peer) {
    Message& last = peers_[peer].messages.back();
    last.complete = true;
    return last.header.message_tag();
  }
  // The oldest message of the peer with this tag, complete or not, or null.
  const Message* find(int peer, int tag) const;
  // Removes what find() returned, which must be complete.
  void drop(int peer, int tag);

 private:
  // The cost of a queued message besides its payload, so that empty ones are bounded too.
  static constexpr std::size_t kOverhead = 128;

  struct Peer {
    std::deque<Message> messages;
    std::size_t bytes = 0;
  };
  std::vector<Peer> peers_;
  std::size_t max_bytes_;
};

}  // namespace dlaunch
