// WorkerStream: the reading end of one worker's stdout or stderr, with what belongs to it: the log
// file, the line splitter, and for stderr the tail that the report quotes and the last traceback.
// It has no buffer of its own beyond the unfinished line, so that hundreds of workers cost little.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/output/file_writer.h"
#include "launcher/output/line_splitter.h"
#include "launcher/output/live_bars.h"
#include "launcher/output/traceback_watch.h"

namespace dlaunch {

// The last few KiB of a stream.
class StreamTail {
 public:
  void append(std::string_view bytes);
  // Its last lines, oldest first, at most `most`; of a progress bar only the last state.
  std::vector<std::string> lines(std::size_t most) const;

 private:
  static constexpr std::size_t kKept = 8 << 10;
  std::string text_;
  bool cut_ = false;  // text_ does not begin where the stream began
};

class WorkerStream {
 public:
  static constexpr std::size_t kDefaultPipe = 64 << 10;  // the kernel's default

  WorkerStream(asio::io_context& loop, int slot, int its_rank, OutputStream its_kind)
      : rank(its_rank), slot_(slot), kind_(its_kind), pipe_(loop) {}

  int slot() const { return slot_; }
  OutputStream kind() const { return kind_; }
  LiveBars::Who who() const { return {rank, slot_, kind_}; }
  bool is_open() const { return pipe_.is_open(); }

  // Makes the pipe, with room for `pipe_bytes` where the kernel allows it; returns the worker's
  // end.
  Result<UniqueFd> open_pipe(std::size_t pipe_bytes);
  // Reads from that end of a pipe instead of one of its own.
  Result<void> adopt(UniqueFd reading);
  // FOLDER/ROUND/RANK/{stdout,stderr}; of a spare FOLDER/ROUND/spareSLOT/…
  Result<void> open_log(const std::string& folder, int round);
  // "": none, or it was given up.
  std::string log() const { return log_ && !log_->gone ? log_->name : ""; }
  // The log file; null: there is none.
  const FileWriter::FilePtr& log_file() const { return log_; }
  void close();

  // read(2) without waiting: < 0 with errno if nothing is there, 0 at the end.
  long read(char* buffer, std::size_t size);
  // Bytes that the pipe holds now.
  std::size_t held();
  // `handler(error_code)` when there is something to read.
  template <class Handler>
  void wait(Handler handler) {
    pipe_.async_wait(asio::posix::stream_descriptor::wait_read, std::move(handler));
  }

  int rank;                         // -1: a spare
  bool shown = false;               // on our own output
  bool reaped = false;              // the worker has ended; we do not wait for other writers
  std::optional<TimePoint> said;    // the last time that something was read
  std::function<void()> passed_on;  // of pass_on(): called at the end
  LineSplitter lines;
  std::uint64_t bar_version = 0;  // of its bars that are drawn
  StreamTail tail;
  TracebackWatch traceback;

 private:
  const int slot_;
  const OutputStream kind_;
  asio::posix::stream_descriptor pipe_;
  FileWriter::FilePtr log_;
};

}  // namespace dlaunch
