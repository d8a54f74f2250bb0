#include "ring/stream/inbox.h"

#include <algorithm>
#include <new>

#include "base/check.h"

namespace dlaunch {
namespace {

template <class Messages>
auto find_tag(Messages& messages, int tag) {
  return std::find_if(messages.begin(), messages.end(),
                      [tag](const auto& m) { return m.header.message_tag() == tag; });
}

}  // namespace

Inbox::Message* Inbox::add(int peer, const FrameHeader& header) {
  Peer& queue = peers_[peer];
  const std::size_t room = max_bytes_ - queue.bytes;
  if (room < kOverhead || header.bytes > room - kOverhead) return nullptr;
  std::unique_ptr<std::byte[]> payload(new (std::nothrow) std::byte[header.bytes]);
  if (!payload) return nullptr;
  queue.bytes += header.bytes + kOverhead;
  queue.messages.push_back({.header = header, .payload = std::move(payload), .complete = false});
  return &queue.messages.back();
}

const Inbox::Message* Inbox::find(int peer, int tag) const {
  const auto& messages = peers_[peer].messages;
  const auto found = find_tag(messages, tag);
  return found == messages.end() ? nullptr : &*found;
}

void Inbox::drop(int peer, int tag) {
  Peer& queue = peers_[peer];
  const auto found = find_tag(queue.messages, tag);
  DL_ASSERT(found != queue.messages.end() && found->complete);
  queue.bytes -= found->header.bytes + kOverhead;
  queue.messages.erase(found);
}

}  // namespace dlaunch
