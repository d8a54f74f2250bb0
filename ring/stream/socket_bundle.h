// SocketBundle: one stream of bytes over one or several sockets to the same process. A single
// socket carries just the stream. With several the sender cuts it into pieces, each behind a header
// (u64 position in the stream, u32 length, little endian), and gives each piece to a socket that
// takes more now; on each socket positions only grow. The receiver takes the stream in order: early
// pieces stay in their socket's own buffer. The end of one socket may overtake the last bytes of
// another, so the stream ends when no socket can bring its next byte any longer. So the sender
// alone decides how many sockets it uses, piece by piece, and a packet lost on one of them does not
// slow the others down. Non-blocking; not thread-safe.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace dlaunch {

class SocketBundle {
 public:
  explicit SocketBundle(UniqueFd socket);
  // Adds a socket. Both sides must add as many, before the first byte.
  void add(UniqueFd socket);

  std::size_t sockets() const { return lanes_.size(); }
  int fd(std::size_t i = 0) const { return lanes_[i].socket.get(); }
  // How many of them to send over from now on: at least one, at most all.
  void use(std::size_t sockets);
  std::size_t used() const { return used_; }

  // Sends as many as it can of these `bytes` bytes, which follow the bytes taken by earlier calls,
  // and returns how many of them, from the first on, are in the kernel now. More may be there, so
  // the next call must repeat the rest unchanged. A failing socket is an Errc::io error with
  // os_errno.
  Result<std::size_t> send(const iovec* data, std::size_t pieces, std::size_t bytes);
  bool writable() const;

  struct Received {
    std::size_t bytes = 0;
    bool ended = false;  // end of stream or a broken connection: no more bytes will come
    int os_errno = 0;    // why it ended; 0: end of stream
  };
  // The next bytes of the stream, at most `room` bytes; none: not now. Errc::protocol if the bytes
  // are not a piece.
  Result<Received> receive(const iovec* data, std::size_t pieces, std::size_t room);

  // For the poll: bytes from this socket would help; the socket is full, and holds something up.
  bool awaits(std::size_t i) const;
  bool blocked(std::size_t i) const;
  void mark(std::size_t i, bool readable, bool writable);
  void mark_all_readable();

 private:
  static constexpr std::size_t kHeaderBytes = 12;
  using Header = std::array<std::byte, kHeaderBytes>;
  struct Lane {
    UniqueFd socket;
    bool writable = true, readable = true;
    bool ended = false;  // its peer has closed it
    // The piece being sent: its next position, and the rest of it and of its header.
    std::uint64_t out_at = 0;
    std::size_t out_left = 0, out_header_left = 0;
    Header out_header{};
    // The piece being received.
    std::uint64_t in_at = 0;
    std::size_t in_left = 0, in_header_have = 0;
    Header in_header{};
  };

  bool several() const { return lanes_.size() > 1; }
  bool all_has_come() const;
  bool take_piece(Lane& lane, std::uint64_t end);
  void give_back_piece(Lane& lane);
  Result<bool> send_piece(Lane& lane, const iovec* data, std::size_t pieces);
  std::uint64_t first_unsent() const;
  Result<Received> receive_from(Lane& lane, const iovec* data, std::size_t pieces,
                                std::size_t room);
  Result<void> read_header(Lane& lane, Received& received);

  std::vector<Lane> lanes_;
  std::size_t used_ = 1;
  std::size_t turn_ = 0;        // of sending: the socket to try first
  std::uint64_t released_ = 0;  // bytes that are in the kernel, from the first of the stream on
  std::uint64_t assigned_ = 0;  // bytes that a socket has or will have
  std::uint64_t received_ = 0;
};

}  // namespace dlaunch
