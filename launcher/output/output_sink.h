// OutputSink: one of our own output descriptors and the bytes that wait for it. It never blocks the
// loop for long and never changes the flags of a descriptor that we share with other programs:
// - it reopens pipes and terminals through /proc/self/fd, non-blocking;
// - it writes to sockets with MSG_DONTWAIT;
// - it leaves files to the FileWriter;
// - it writes to what cannot be reopened (a terminal of another user) in small pieces, each only
//   when poll(2) says that there is room.
//
// When the reader has gone away, later output is dropped silently: that is what `head` and a closed
// terminal mean. Any other failure, such as a full disk, is reported once.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/output/file_writer.h"
#include "launcher/output/live_bars.h"

namespace dlaunch {

class OutputSink {
 public:
  struct Handlers {
    std::function<void()> drained;             // a full sink has room again, or all is written
    std::function<void(const Error&)> failed;  // the sink is gone, and not because of its reader
  };

  // `fd` stays open; the sink does not close it. `name` is for messages: "stdout". The writer must
  // outlive the sink. It reports its own failures, and when it has room.
  OutputSink(asio::io_context& loop, FileWriter& files, int fd, std::string name,
             Handlers handlers);

  void append(std::string_view bytes) { waiting_.append(bytes); }
  void append(char c) { waiting_ += c; }
  // Writes what can be written now; the rest follows when there is room.
  void flush();

  // Producers should stop until `drained`.
  bool full() const { return waiting_.size() - written_ >= kHighWater || (file_ && files_.full()); }
  bool empty() const { return waiting_.size() == written_ && (!file_ || files_.empty()); }
  bool gone() const { return file_ ? file_->gone.load() : gone_; }
  bool is_terminal() const { return terminal_; }
  // False: a shell has our job in its background, and the terminal's last row is the shell's.
  bool is_foreground();
  // The terminal's size now.
  LiveBars::Window window();

 private:
  static constexpr std::size_t kHighWater = 1 << 20;
  static constexpr std::size_t kLowWater = 256 << 10;
  enum class Kind { socket, reopened, shared };

  UniqueFd open_own(int fd);
  int target();  // the descriptor to write to
  long write_some();
  void wait_for_room();
  void drop_written();
  void fail(int err);

  FileWriter& files_;
  const std::string name_;
  FileWriter::FilePtr file_;
  Kind kind_ = Kind::shared;
  UniqueFd shared_;  // the descriptor to write to, if descriptor_ only watches it
  asio::posix::stream_descriptor descriptor_;
  Handlers handlers_;
  std::string waiting_;
  std::size_t written_ = 0;  // of waiting_
  bool terminal_ = false;
  bool pending_ = false;
  bool gone_ = false;
};

}  // namespace dlaunch
