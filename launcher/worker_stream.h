// WorkerStream: the reading end of one worker's stdout or stderr, with what belongs to it: the log
// file, the line splitter, and for stderr the tail that the report quotes.
#pragma once

#include <string>
#include <string_view>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "base/unique_fd.h"
#include "launcher/line_splitter.h"

namespace dlaunch {

struct WorkerStream {
  WorkerStream(asio::io_context& loop, int rank_of, bool is_stderr)
      : rank(rank_of), error(is_stderr), pipe(loop) {}

  int rank;
  bool error;
  bool shown = false;   // on the terminal
  bool paused = false;  // the sink is full
  asio::posix::stream_descriptor pipe;
  UniqueFd log;
  std::string log_path;
  LineSplitter lines;
  std::string tail;  // the last bytes of stderr

  void keep_tail(std::string_view bytes) {
    constexpr std::size_t kTail = 8192;
    if (bytes.size() >= kTail) {
      tail.assign(bytes.substr(bytes.size() - kTail));
    } else {
      tail.append(bytes);
      if (tail.size() > 2 * kTail) tail.erase(0, tail.size() - kTail);
    }
  }
};

}  // namespace dlaunch
