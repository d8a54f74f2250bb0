// OutputSink: one of our own output descriptors and the bytes that wait for it. It never blocks the
// loop and never changes the flags of a descriptor that we share with other programs: pipes and
// terminals are opened anew through /proc/self/fd, sockets are written with MSG_DONTWAIT, and files
// do not block. When the reader has gone away, what comes later is dropped.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

namespace dlaunch {

class OutputSink {
 public:
  // `fd` stays open and is not closed by us. `drained` is called when a full sink has room again,
  // and whenever it has become empty.
  OutputSink(asio::io_context& loop, int fd, std::function<void()> drained);

  void append(std::string_view bytes) { waiting_.append(bytes); }
  void append(char c) { waiting_ += c; }
  // Writes what can be written now; the rest follows when there is room.
  void flush();

  // Producers should stop until `drained`.
  bool full() const { return waiting_.size() - written_ >= kHighWater; }
  bool empty() const { return waiting_.size() == written_; }
  bool gone() const { return gone_; }

 private:
  static constexpr std::size_t kHighWater = 4 << 20;
  static constexpr std::size_t kLowWater = 1 << 20;
  enum class Kind { file, socket, reopened, shared };

  long write_some();
  void wait_for_room();

  Kind kind_;
  asio::posix::stream_descriptor descriptor_;
  std::function<void()> drained_;
  std::string waiting_;
  std::size_t written_ = 0;  // of waiting_
  bool pending_ = false;
  bool gone_ = false;
};

// Do both descriptors lead to the same file, pipe or terminal?
bool same_target(int a, int b);

}  // namespace dlaunch
