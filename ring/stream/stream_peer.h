// StreamPeer: the framing of one peer's socket or sockets. Non-blocking: each call does what they
// allow now. Payload goes directly between the socket and the caller's memory; only headers, and
// payload read together with its header, pass a small buffer. Does not know collectives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"
#include "ring/stream/frame.h"
#include "ring/stream/socket_bundle.h"

namespace dlaunch {

struct OutFrame {
  FrameHeader header;
  const void* payload = nullptr;
};

class StreamPeer {
 public:
  static constexpr std::size_t kMaxBatch = 8;

  // The socket must be non-blocking. `round` goes into every frame, and every received frame must
  // have it.
  StreamPeer(UniqueFd socket, std::uint64_t round) : sockets_(std::move(socket)), round_(round) {}

  SocketBundle& sockets() { return sockets_; }
  const SocketBundle& sockets() const { return sockets_; }

  // Writes the frames, header and payload in one system call, and returns how many of them are now
  // entirely in the kernel. The next call must begin with the unfinished frame. At most kMaxBatch
  // frames. A failing socket is an Errc::io error with os_errno.
  Result<std::size_t> send(std::span<const OutFrame> frames);
  bool writable() const { return sockets_.writable(); }  // as far as is known

  enum class Got { nothing, header, payload };
  // Reads on. `header`: a header is there; nothing more is read until accept(). `payload`: the
  // accepted payload is complete. `nothing`: not now, or never again (see ended()). Errc::protocol:
  // the bytes are not a frame of this round.
  Result<Got> receive();
  bool has_header() const { return state_ == State::held; }
  bool awaits_payload() const { return state_ == State::payload; }  // more of the accepted payload
  const FrameHeader& header() const { return header_; }
  void accept(void* payload);                 // room for header().bytes
  bool ended() const { return ended_; }       // end of stream or a broken connection
  int os_errno() const { return os_errno_; }  // why it ended; 0: end of stream

  // Something may have come.
  void mark_readable() { sockets_.mark_all_readable(); }

 private:
  enum class State { awaiting_header, held, payload };
  static constexpr std::size_t kBufferBytes = 4096;

  std::size_t buffered() const { return buffer_end_ - buffer_begin_; }
  Result<bool> fill();
  std::size_t take_buffered(std::byte* to, std::size_t most);

  SocketBundle sockets_;
  std::uint64_t round_;
  bool ended_ = false;
  int os_errno_ = 0;
  std::size_t sent_ = 0;  // bytes of the unfinished frame
  State state_ = State::awaiting_header;
  FrameHeader header_;
  std::byte* payload_ = nullptr;
  std::size_t missing_ = 0;  // of the payload
  std::size_t buffer_begin_ = 0, buffer_end_ = 0;
  std::array<std::byte, kBufferBytes> buffer_;
};

}  // namespace dlaunch
