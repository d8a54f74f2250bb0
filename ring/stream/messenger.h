// Messenger: point-to-point messages over one stream socket per peer, separate from the
// collectives', so that neither blocks the other. Any number of sends and receives may be pending.
// Messages without a receive go to a bounded inbox. A socket that the group lacks comes from its
// source when a message first needs it, or when the peer's does.
//
// Not thread-safe: either one thread calls transfer(), or one thread serves a queue of operations
// from others.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ring/call/operation.h"
#include "ring/stream/inbox.h"
#include "ring/stream/socket_group.h"

namespace dlaunch {

class Messenger {
 public:
  explicit Messenger(std::unique_ptr<SocketGroup> sockets)
      : sockets_(std::move(sockets)),
        inbox_(sockets_->ranks()),
        sends_(static_cast<std::size_t>(sockets_->ranks())),
        coming_(static_cast<std::size_t>(sockets_->ranks())) {}

  // Blocks until the message has been sent or received. Errors are final for the messenger.
  Result<void> transfer(Message& message);
  // Takes operations, all of them messages, from the queue, even while others are pending, and
  // finishes each. Returns when none is pending and the queue is empty.
  void serve(OperationQueue& queue);
  // In a forked child: closes the child's copies of the sockets.
  void close_in_child() const { sockets_->close_in_child(); }

 private:
  // A pending message.
  struct Transfer {
    Message* message = nullptr;
    std::shared_ptr<Operation> operation;  // null: transfer()'s
    TimePoint begun{};
    bool done = false;
  };
  using TransferPtr = std::shared_ptr<Transfer>;

  void take(const std::shared_ptr<Operation>& operation);
  Result<void> turn(int extra);
  void post(const TransferPtr& transfer);
  bool take_from_inbox(Message& message, Error& wrong);
  Result<bool> advance();
  Result<void> push(int peer, bool& moved);
  Result<void> pull(int peer, bool& moved);
  Result<bool> admit(int peer);
  Result<void> received(int peer);
  std::list<TransferPtr>::iterator find_posted(int peer, int tag);
  static void end(const TransferPtr& transfer, Result<void> outcome);
  void finish(const TransferPtr& transfer);
  SocketGroup::Interest interest(int peer) const;
  const Message* awaited_from(int peer) const;
  bool expects(int peer) const { return awaited_from(peer) != nullptr; }
  bool awaits_any() const;
  bool all_ended() const;
  template <class Look>
  void for_each_under_way(Look look) const;
  TimePoint next_deadline() const;
  Error timed_out();
  Error lost(int peer, int os_errno);
  std::string activity_with(int peer) const;
  Result<void> wait(int extra);
  void fail(const Error& error);
  bool idle() const { return under_way_ == 0; }

  std::unique_ptr<SocketGroup> sockets_;
  Inbox inbox_;
  std::vector<std::deque<TransferPtr>> sends_;  // by peer, in order
  std::list<TransferPtr> receives_;             // those that no message has begun to fill, in order
  std::vector<TransferPtr> coming_;  // by peer: the receive that the incoming payload fills; null:
                                     // the inbox
  std::size_t under_way_ = 0;
  unsigned turns_ = 0;  // turns that moved something
  std::optional<Error> failed_;
};

}  // namespace dlaunch
