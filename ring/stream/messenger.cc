#include "ring/stream/messenger.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/failpoint.h"
#include "base/units.h"
#include "ring/call/plane.h"
#include "ring/kernels/copy.h"
#include "ring/stream/stream_errors.h"

namespace dlaunch {
namespace {

// Bytes match a message of any type.
bool matches(const FrameHeader& sent, const Message& wanted) {
  if (sent.message_dtype() == wanted.dtype) return sent.count == wanted.count;
  const bool as_bytes = sent.message_dtype() == DL_UINT8 || wanted.dtype == DL_UINT8;
  return as_bytes && sent.bytes == wanted.count * dtype_bytes(wanted.dtype);
}

}  // namespace

Result<void> Messenger::transfer(Message& message) {
  if (failed_) return *failed_;
  sockets_->begin();
  const auto own = std::make_shared<Transfer>(Transfer{.message = &message, .begun = steady_now()});
  post(own);
  while (!own->done && !failed_) {
    if (auto ok = turn(-1); !ok) fail(ok.error());
  }
  return failed_ ? Result<void>(*failed_) : Result<void>();
}

void Messenger::serve(OperationQueue& queue) {
  sockets_->begin();
  while (true) {
    while (const auto operation = queue.take()) take(operation);
    if (idle()) return;
    if (auto ok = without_exceptions([&] { return turn(queue.event()); }); !ok) fail(ok.error());
  }
}

void Messenger::take(const std::shared_ptr<Operation>& operation) {
  const auto posted = without_exceptions([&]() -> Result<void> {
    post(std::make_shared<Transfer>(
        Transfer{.message = &operation->message, .operation = operation, .begun = steady_now()}));
    return {};
  });
  if (posted) return;
  fail(posted.error());
  if (!operation->done()) operation->finish(posted.error());
}

// Makes all progress that is possible now, or waits; `extra` ends the wait, too.
Result<void> Messenger::turn(int extra) {
  const auto moved = advance();
  if (!moved) return moved.error();
  if (idle()) return {};
  if (!*moved) return wait(extra);
  // Even moving data may be too slow; but checking all pending messages takes time, too.
  constexpr unsigned kTurnsPerLook = 64;
  if (++turns_ % kTurnsPerLook != 0 || steady_now() < next_deadline()) return {};
  return timed_out();
}

void Messenger::post(const TransferPtr& transfer) {
  if (failed_) return end(transfer, *failed_);
  ++under_way_;
  failpoint("messenger.posted");
  Message& message = *transfer->message;
  Error wrong;
  if (message.is_send) {
    sends_[static_cast<std::size_t>(message.peer)].push_back(transfer);
    sockets_->reach(message.peer, true);
  } else if (take_from_inbox(message, wrong)) {
    finish(transfer);
  } else {
    receives_.push_back(transfer);
    if (!wrong.what.empty()) return fail(wrong);
    for (int d = 1; d < sockets_->ranks(); ++d) {
      const int peer = sockets_->at_distance(d);
      if (message.peer == peer || message.peer == kAnySource) sockets_->reach(peer, false);
    }
  }
}

// Takes the oldest matching message from the inbox; sets `wrong` if it is of another kind.
bool Messenger::take_from_inbox(Message& message, Error& wrong) {
  for (int d = 1; d < sockets_->ranks(); ++d) {
    const int peer = sockets_->at_distance(d);
    if (message.peer != peer && message.peer != kAnySource) continue;
    const Inbox::Message* queued = inbox_.find(peer, message.tag);
    if (queued == nullptr || !queued->complete) continue;
    message.source = peer;
    if (!matches(queued->header, message)) {
      wrong = message_mismatch(sockets_->rank(), message, queued->header);
      return false;
    }
    if (queued->header.bytes > 0) {
      copy_cached(message.recv, queued->payload.get(), queued->header.bytes);
    }
    inbox_.drop(peer, message.tag);
    return true;
  }
  return false;
}

// Reads and writes as much as the sockets allow now. It reads from all peers, even without a
// receive: a peer may be stuck in a send to this rank. True if something moved.
Result<bool> Messenger::advance() {
  if (sockets_->abort().raised()) return sockets_->abort().error();
  if (auto ok = sockets_->attach_new(); !ok) return ok.error();
  bool moved = false;
  for (int d = 1; d < sockets_->ranks(); ++d) {
    const int peer = sockets_->at_distance(d);
    if (!sockets_->has(peer)) continue;
    if (auto pushed = push(peer, moved); !pushed) return pushed.error();
    if (auto pulled = pull(peer, moved); !pulled) return pulled.error();
  }
  if (moved) sockets_->moved();
  return moved;
}

Result<void> Messenger::push(int peer, bool& moved) {
  StreamPeer& to = (*sockets_)[peer];
  auto& queue = sends_[static_cast<std::size_t>(peer)];
  if (queue.empty() || !to.writable()) return {};
  OutFrame frames[StreamPeer::kMaxBatch];
  std::size_t count = 0;
  for (const auto& transfer : queue) {
    if (count == StreamPeer::kMaxBatch) break;
    const Message& m = *transfer->message;
    frames[count++] = {message_frame(m.count, m.dtype, m.tag), m.send};
  }
  const auto sent = to.send({frames, count});
  if (!sent) return lost(peer, sent.error().os_errno);
  moved |= *sent > 0;
  for (std::size_t i = 0; i < *sent; ++i) {
    finish(queue.front());
    queue.pop_front();
  }
  return {};
}

Result<void> Messenger::pull(int peer, bool& moved) {
  const auto took = [&]() -> Result<bool> {
    if (auto ok = received(peer); !ok) return ok.error();
    return true;
  };
  auto read = sockets_->read(
      peer, moved, [&] { return admit(peer); }, took);
  if (!read) return read;
  const StreamPeer& from = (*sockets_)[peer];
  if (!from.ended() || from.has_header()) return {};
  const bool needed = expects(peer) || !sends_[static_cast<std::size_t>(peer)].empty() ||
                      coming_[static_cast<std::size_t>(peer)] != nullptr;
  if (needed || (awaits_any() && all_ended())) return lost(peer, from.os_errno());
  return {};
}

std::list<Messenger::TransferPtr>::iterator Messenger::find_posted(int peer, int tag) {
  return std::find_if(receives_.begin(), receives_.end(), [&](const auto& transfer) {
    const Message& m = *transfer->message;
    return m.tag == tag && (m.peer == peer || m.peer == kAnySource);
  });
}

// Whether the message of the present header can be taken in now; then sets its place.
Result<bool> Messenger::admit(int peer) {
  const FrameHeader& header = (*sockets_)[peer].header();
  if (header.kind != FrameKind::message) return bad_frame(peer, "a collective's frame");
  if (const auto posted = find_posted(peer, header.message_tag()); posted != receives_.end()) {
    Message& message = *(*posted)->message;
    message.source = peer;
    if (!matches(header, message)) return message_mismatch(sockets_->rank(), message, header);
    (*sockets_)[peer].accept(message.recv);
    coming_[static_cast<std::size_t>(peer)] = *posted;
    receives_.erase(posted);
    return true;
  }
  if (const Inbox::Message* queued = inbox_.add(peer, header)) {
    (*sockets_)[peer].accept(queued->payload.get());
    return true;
  }
  // Only another receive could make room; a receive of a later message would wait for ever.
  if (expects(peer)) return inbox_full(peer, activity_with(peer), header);
  return false;
}

// A message is complete: in its receive's buffer, or in the inbox, which passes it to a receive
// that began meanwhile.
Result<void> Messenger::received(int peer) {
  failpoint("messenger.received");
  if (auto transfer = std::move(coming_[static_cast<std::size_t>(peer)])) {
    finish(transfer);
    return {};
  }
  const int tag = inbox_.complete(peer);
  const auto posted = find_posted(peer, tag);
  if (posted == receives_.end()) return {};
  const TransferPtr transfer = *posted;
  Error wrong;
  if (!take_from_inbox(*transfer->message, wrong)) return wrong;
  receives_.erase(posted);
  finish(transfer);
  return {};
}

void Messenger::end(const TransferPtr& transfer, Result<void> outcome) {
  transfer->done = true;
  if (transfer->operation) transfer->operation->finish(std::move(outcome));
}

void Messenger::finish(const TransferPtr& transfer) {
  --under_way_;
  end(transfer, {});
}

// Fails all pending and all later messages.
void Messenger::fail(const Error& error) {
  failed_ = error;
  for (auto& queue : sends_) {
    for (const auto& transfer : queue) end(transfer, error);
    queue.clear();
  }
  for (const auto& transfer : receives_) end(transfer, error);
  for (auto& transfer : coming_) {
    if (transfer) end(std::exchange(transfer, nullptr), error);
  }
  receives_.clear();
  under_way_ = 0;
}

// The first receive that no message has begun to fill; null: none.
const Message* Messenger::awaited_from(int peer) const {
  const auto found = std::find_if(receives_.begin(), receives_.end(), [&](const auto& transfer) {
    return transfer->message->peer == peer;
  });
  return found == receives_.end() ? nullptr : (*found)->message;
}

bool Messenger::awaits_any() const { return expects(kAnySource); }

bool Messenger::all_ended() const {
  for (int d = 1; d < sockets_->ranks(); ++d) {
    const int peer = sockets_->at_distance(d);
    if (!sockets_->has(peer) || !(*sockets_)[peer].ended()) return false;
  }
  return true;
}

SocketGroup::Interest Messenger::interest(int peer) const {
  const auto at = static_cast<std::size_t>(peer);
  return {.reads = awaits_any() || expects(peer) || coming_[at] != nullptr,
          .writes = !sends_[at].empty()};
}

template <class Look>
void Messenger::for_each_under_way(Look look) const {
  for (const auto& queue : sends_) std::for_each(queue.begin(), queue.end(), look);
  std::for_each(receives_.begin(), receives_.end(), look);
  for (const auto& transfer : coming_) {
    if (transfer) look(transfer);
  }
}

TimePoint Messenger::next_deadline() const {
  TimePoint first = kNever;
  for_each_under_way(
      [&](const TransferPtr& transfer) { first = std::min(first, transfer->message->deadline); });
  return first;
}

Result<void> Messenger::wait(int extra) {
  auto waited = sockets_->wait(next_deadline(), extra, [this](int peer) { return interest(peer); });
  if (!waited) return waited.error();
  if (*waited == SocketGroup::Waited::deadline) return timed_out();
  return {};
}

// What this rank waits for from the peer, for error texts: a receive that only this peer can end
// comes first.
std::string Messenger::activity_with(int peer) const {
  const auto at = static_cast<std::size_t>(peer);
  if (coming_[at]) return activity_of(*coming_[at]->message);
  if (const auto* message = awaited_from(peer)) return activity_of(*message);
  if (!sends_[at].empty()) return activity_of(*sends_[at].front()->message);
  const auto* const any = awaited_from(kAnySource);
  return any != nullptr ? activity_of(*any) : "nothing";
}

Error Messenger::timed_out() {
  if (sockets_->abort().told(AbortFlag::kBetterReason)) return sockets_->abort().error();
  const TimePoint deadline = next_deadline();
  TransferPtr late;
  for_each_under_way([&](const TransferPtr& transfer) {
    if (!late && transfer->message->deadline == deadline) late = transfer;
  });
  return {.code = Errc::timeout,
          .what = fmt::format("rank {}: {} timed out after {}", sockets_->rank(),
                              activity_of(*late->message),
                              format_duration(steady_now() - late->begun))};
}

Error Messenger::lost(int peer, int os_errno) {
  if (sockets_->told_of_loss(peer)) return sockets_->abort().error();
  return connection_failed(peer, activity_with(peer), os_errno);
}

}  // namespace dlaunch
