#include "ring/stream/stream_peer.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/failpoint.h"
#include "ring/kernels/copy.h"

namespace dlaunch {

Result<std::size_t> StreamPeer::send(std::span<const OutFrame> frames) {
  DL_ASSERT(frames.size() <= kMaxBatch);
  std::byte headers[kMaxBatch][kFrameHeaderBytes];
  iovec pieces[2 * kMaxBatch] = {};
  std::size_t count = 0, total = 0;
  std::size_t skip = sent_;
  const auto add = [&](const void* data, std::size_t bytes) {
    const std::size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    if (skipped == bytes) return;
    auto* const begin = const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skipped;
    pieces[count++] = {begin, bytes - skipped};
    total += bytes - skipped;
  };
  for (std::size_t i = 0; i < frames.size(); ++i) {
    encode_frame(frames[i].header, round_, headers[i]);
    add(headers[i], kFrameHeaderBytes);
    add(frames[i].payload, frames[i].header.bytes);
  }

  const auto written = sockets_.send(pieces, count, total);
  if (!written) return written.error();
  sent_ += *written;
  std::size_t finished = 0;
  while (finished < frames.size() && sent_ >= kFrameHeaderBytes + frames[finished].header.bytes) {
    sent_ -= kFrameHeaderBytes + frames[finished++].header.bytes;
  }
  return finished;
}

// Reads payload and the bytes after it, once. False if nothing came.
Result<bool> StreamPeer::fill() {
  if (ended_) return false;
  if (buffer_begin_ == buffer_end_) buffer_begin_ = buffer_end_ = 0;
  // During a payload, read only the next header along with it: further bytes would belong to a
  // payload whose place is not known yet, and would need a copy.
  const std::size_t room = missing_ > 0 ? kFrameHeaderBytes : kBufferBytes - buffer_end_;
  const iovec pieces[2] = {{payload_, missing_}, {buffer_.data() + buffer_end_, room}};
  const auto got = missing_ > 0 ? sockets_.receive(pieces, 2, missing_ + room)
                                : sockets_.receive(pieces + 1, 1, room);
  if (!got) return got.error();
  ended_ = got->ended;
  os_errno_ = got->os_errno;
  const std::size_t direct = std::min(got->bytes, missing_);
  payload_ += direct;
  missing_ -= direct;
  buffer_end_ += got->bytes - direct;
  return got->bytes > 0;
}

std::size_t StreamPeer::take_buffered(std::byte* to, std::size_t most) {
  const std::size_t bytes = std::min(most, buffered());
  if (bytes > 0) copy_cached(to, buffer_.data() + buffer_begin_, bytes);
  buffer_begin_ += bytes;
  return bytes;
}

Result<StreamPeer::Got> StreamPeer::receive() {
  if (state_ == State::held) return Got::header;
  if (state_ == State::payload) {
    const std::size_t taken = take_buffered(payload_, missing_);
    payload_ += taken;
    missing_ -= taken;
    while (missing_ > 0) {
      const auto filled = fill();
      if (!filled) return filled.error();
      if (!*filled) return Got::nothing;
    }
    state_ = State::awaiting_header;
    return Got::payload;
  }
  if (buffered() < kFrameHeaderBytes) {
    if (buffer_begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + buffer_begin_, buffered());
      buffer_end_ -= buffer_begin_;
      buffer_begin_ = 0;
    }
    while (buffered() < kFrameHeaderBytes) {
      const auto filled = fill();
      if (!filled) return filled.error();
      if (!*filled) return Got::nothing;
    }
  }
  std::byte bytes[kFrameHeaderBytes];
  take_buffered(bytes, sizeof bytes);
  auto header = decode_frame(bytes, round_);
  if (!header) return header.error();
  header_ = *header;
  state_ = State::held;
  failpoint("stream.header");
  return Got::header;
}

void StreamPeer::accept(void* payload) {
  DL_ASSERT(state_ == State::held);
  payload_ = static_cast<std::byte*>(payload);
  missing_ = header_.bytes;
  state_ = State::payload;
}

}  // namespace dlaunch
