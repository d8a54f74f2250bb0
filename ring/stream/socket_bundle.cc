#include "ring/stream/socket_bundle.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/failpoint.h"

namespace dlaunch {
namespace {

// Each socket's share of the data, within these limits: a packet's worth, and a size that keeps
// system calls rare.
constexpr std::size_t kLeastPiece = 4 << 10, kMostPiece = 64 << 10;
constexpr std::size_t kMaxPieces = 32;  // pieces of memory in one system call

// The part [from, from + bytes) of `data`; how many pieces it has.
std::size_t cut(const iovec* data, std::size_t pieces, std::size_t from, std::size_t bytes,
                iovec* out) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < pieces && bytes > 0 && count < kMaxPieces; ++i) {
    if (from >= data[i].iov_len) {
      from -= data[i].iov_len;
      continue;
    }
    const std::size_t here = std::min(data[i].iov_len - from, bytes);
    out[count++] = {static_cast<std::byte*>(data[i].iov_base) + from, here};
    bytes -= here;
    from = 0;
  }
  return count;
}

std::size_t bytes_in(const iovec* data, std::size_t pieces) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < pieces; ++i) sum += data[i].iov_len;
  return sum;
}

// The kernel handles one piece of memory faster than a list, even with a copy before.
constexpr std::size_t kGathered = 256;

ssize_t send_pieces(int fd, iovec* data, std::size_t pieces) {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  if (pieces == 1) return ::send(fd, data[0].iov_base, data[0].iov_len, kFlags);
  const std::size_t bytes = bytes_in(data, pieces);
  if (bytes <= kGathered) {
    std::byte whole[kGathered];
    std::size_t at = 0;
    for (std::size_t i = 0; i < pieces; at += data[i++].iov_len) {
      std::memcpy(whole + at, data[i].iov_base, data[i].iov_len);
    }
    return ::send(fd, whole, bytes, kFlags);
  }
  msghdr message{};
  message.msg_iov = data;
  message.msg_iovlen = pieces;
  return ::sendmsg(fd, &message, kFlags);
}

ssize_t write_some(int fd, iovec* data, std::size_t pieces) {
  failpoint_write("stream.send", data, pieces, bytes_in(data, pieces));
  ssize_t n;
  do {
    n = send_pieces(fd, data, pieces);
  } while (n < 0 && errno == EINTR);
  return n;
}

ssize_t read_some(int fd, iovec* data, std::size_t pieces) {
  msghdr message{};
  message.msg_iov = data;
  message.msg_iovlen = pieces;
  ssize_t n;
  do {
    n = pieces == 1 ? ::recv(fd, data[0].iov_base, data[0].iov_len, MSG_DONTWAIT)
                    : ::recvmsg(fd, &message, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n > 0) failpoint("stream.read");
  return n;
}

bool means_later() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

SocketBundle::SocketBundle(UniqueFd socket) { add(std::move(socket)); }

void SocketBundle::add(UniqueFd socket) {
  lanes_.emplace_back();
  lanes_.back().socket = std::move(socket);
}

void SocketBundle::use(std::size_t sockets) {
  used_ = std::clamp<std::size_t>(sockets, 1, lanes_.size());
}

// -- Sending

Result<std::size_t> SocketBundle::send(const iovec* data, std::size_t pieces, std::size_t bytes) {
  if (!several()) {
    iovec out[kMaxPieces];
    const std::size_t count = cut(data, pieces, 0, bytes, out);
    const ssize_t n = write_some(fd(), out, count);
    if (n < 0 && !means_later()) return errno_error("send", errno);
    lanes_[0].writable = n == static_cast<ssize_t>(bytes);
    return static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
  const std::uint64_t end = released_ + bytes;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      Lane& lane = lanes_[(turn_ + i) % lanes_.size()];
      const bool may_begin = (turn_ + i) % lanes_.size() < used_;
      if (!lane.writable) continue;
      if (lane.out_left == 0 && !(may_begin && take_piece(lane, end))) continue;
      const auto sent = send_piece(lane, data, pieces);
      if (!sent) return sent.error();
      moved |= *sent;
    }
    ++turn_;
  }
  const std::uint64_t upto = first_unsent();
  const auto taken = static_cast<std::size_t>(upto - released_);
  released_ = upto;
  return taken;
}

bool SocketBundle::take_piece(Lane& lane, std::uint64_t end) {
  if (assigned_ >= end) return false;
  const auto left = static_cast<std::size_t>(end - assigned_);
  const auto size = std::min(left, std::clamp((left + used_ - 1) / used_, kLeastPiece, kMostPiece));
  lane.out_at = assigned_;
  lane.out_left = size;
  lane.out_header_left = kHeaderBytes;
  const auto length = static_cast<std::uint32_t>(size);
  std::memcpy(lane.out_header.data(), &lane.out_at, sizeof lane.out_at);
  std::memcpy(lane.out_header.data() + sizeof lane.out_at, &length, sizeof length);
  assigned_ += size;
  return true;
}

// Another socket may take it sooner.
void SocketBundle::give_back_piece(Lane& lane) {
  const bool begun = lane.out_header_left < kHeaderBytes;
  if (begun || lane.out_at + lane.out_left != assigned_) return;
  assigned_ = lane.out_at;
  lane.out_left = lane.out_header_left = 0;
}

// True if the socket took something.
Result<bool> SocketBundle::send_piece(Lane& lane, const iovec* data, std::size_t pieces) {
  iovec out[1 + kMaxPieces];
  std::size_t count = 0;
  if (lane.out_header_left > 0) {
    out[count++] = {lane.out_header.data() + (kHeaderBytes - lane.out_header_left),
                    lane.out_header_left};
  }
  count += cut(data, pieces, static_cast<std::size_t>(lane.out_at - released_), lane.out_left,
               out + count);
  const std::size_t bytes = lane.out_header_left + lane.out_left;
  const ssize_t n = write_some(lane.socket.get(), out, count);
  if (n < 0) {
    if (!means_later()) return errno_error("send", errno);
    lane.writable = false;
    give_back_piece(lane);
    return false;
  }
  const auto written = static_cast<std::size_t>(n);
  lane.writable = written == bytes;
  const std::size_t of_header = std::min(written, lane.out_header_left);
  lane.out_header_left -= of_header;
  lane.out_at += written - of_header;
  lane.out_left -= written - of_header;
  return true;
}

std::uint64_t SocketBundle::first_unsent() const {
  std::uint64_t first = assigned_;
  for (const Lane& lane : lanes_) {
    if (lane.out_left > 0) first = std::min(first, lane.out_at);
  }
  return first;
}

bool SocketBundle::writable() const {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].writable && (i < used_ || lanes_[i].out_left > 0)) return true;
  }
  return false;
}

// -- Receiving

Result<SocketBundle::Received> SocketBundle::receive(const iovec* data, std::size_t pieces,
                                                     std::size_t room) {
  Received received;
  if (!several()) {
    Lane& lane = lanes_[0];
    if (!lane.readable) return received;
    iovec in[kMaxPieces];
    const ssize_t n = read_some(fd(), in, cut(data, pieces, 0, room, in));
    lane.readable = n == static_cast<ssize_t>(room);
    if (n > 0) {
      received.bytes = static_cast<std::size_t>(n);
    } else if (n == 0 || !means_later()) {
      received = {.ended = true, .os_errno = n == 0 ? 0 : errno};
    }
    return received;
  }
  Received end;
  for (Lane& lane : lanes_) {
    if (lane.in_left == 0) {
      if (auto ok = read_header(lane, end); !ok) return ok.error();
    }
    if (lane.in_left == 0 || lane.in_at != received_ || !lane.readable) continue;
    auto got = receive_from(lane, data, pieces, room);
    if (!got || got->bytes > 0) return got;
    if (got->ended) end = *got;
  }
  end.ended |= all_has_come();
  return end;
}

bool SocketBundle::all_has_come() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [this](const Lane& lane) {
    return lane.ended || (lane.in_left > 0 && lane.in_at != received_);
  });
}

Result<void> SocketBundle::read_header(Lane& lane, Received& end) {
  while (lane.readable && lane.in_header_have < kHeaderBytes) {
    iovec rest{lane.in_header.data() + lane.in_header_have, kHeaderBytes - lane.in_header_have};
    const ssize_t n = read_some(lane.socket.get(), &rest, 1);
    if (n <= 0) {
      lane.readable = false;
      lane.ended = n == 0;
      if (n < 0 && !means_later()) end = {.ended = true, .os_errno = errno};
      return {};
    }
    lane.in_header_have += static_cast<std::size_t>(n);
  }
  if (lane.in_header_have < kHeaderBytes) return {};
  std::uint32_t length = 0;
  std::memcpy(&lane.in_at, lane.in_header.data(), sizeof lane.in_at);
  std::memcpy(&length, lane.in_header.data() + sizeof lane.in_at, sizeof length);
  lane.in_header_have = 0;
  lane.in_left = length;
  if (length > 0 && length <= kMostPiece && lane.in_at >= received_) return {};
  return Error{.code = Errc::protocol, .what = "bytes that are no piece of a stream"};
}

// Reads from the socket that has the next bytes; the header of its next piece comes with them.
Result<SocketBundle::Received> SocketBundle::receive_from(Lane& lane, const iovec* data,
                                                          std::size_t pieces, std::size_t room) {
  iovec in[kMaxPieces + 1];
  const std::size_t wanted = std::min(room, lane.in_left);
  std::size_t count = cut(data, pieces, 0, wanted, in);
  const bool whole = wanted == lane.in_left;
  if (whole) in[count++] = {lane.in_header.data(), kHeaderBytes};
  const ssize_t n = read_some(lane.socket.get(), in, count);
  if (n <= 0) {
    lane.readable = false;
    lane.ended = n == 0;
    if (n == 0 || means_later()) return Received();
    return Received{.ended = true, .os_errno = errno};
  }
  const auto got = static_cast<std::size_t>(n);
  const std::size_t of_piece = std::min(got, wanted);
  lane.readable = got == wanted + (whole ? kHeaderBytes : 0);
  lane.in_at += of_piece;
  lane.in_left -= of_piece;
  lane.in_header_have = got - of_piece;
  received_ += of_piece;
  return Received{.bytes = of_piece};
}

// -- Waiting

bool SocketBundle::awaits(std::size_t i) const {
  const Lane& lane = lanes_[i];
  return !several() || (!lane.ended && (lane.in_left == 0 || lane.in_at == received_));
}

bool SocketBundle::blocked(std::size_t i) const {
  const Lane& lane = lanes_[i];
  return !lane.writable && (i < used_ || lane.out_left > 0);
}

void SocketBundle::mark(std::size_t i, bool readable, bool writable) {
  lanes_[i].readable |= readable;
  lanes_[i].writable |= writable;
}

void SocketBundle::mark_all_readable() {
  for (Lane& lane : lanes_) lane.readable = true;
}

}  // namespace dlaunch
